#include "operators/cuda/image_cache.h"

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

namespace mx::cuda {
namespace {

namespace fs = std::filesystem;

constexpr char kMagic[8] = {'M', 'X', 'K', 'E', 'R', 'N', '1', '\n'};

/// FNV-1a of 64 bits.
uint64_t hash(const std::string& text, uint64_t start) {
  uint64_t value = start;
  for (const char c : text) value = (value ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return value;
}
constexpr uint64_t kStart = 0xcbf29ce484222325u, kOtherStart = 0x84222325cbf29ce4u;

fs::path entry(const std::string& folder, const std::string& key) {
  char name[48];
  std::snprintf(name, sizeof name, "%016llx%016llx.mxk", static_cast<unsigned long long>(hash(key, kStart)),
                static_cast<unsigned long long>(hash(key, kOtherStart)));
  return fs::path(folder) / name;
}

void append(std::string& to, uint64_t number) {
  char bytes[sizeof number];
  std::memcpy(bytes, &number, sizeof number);
  to.append(bytes, sizeof number);
}
uint64_t number_at(const std::string& from, size_t place) {
  uint64_t number = 0;
  std::memcpy(&number, from.data() + place, sizeof number);
  return number;
}

/// magic, bytes of the key, bytes of the image, key, image, checksum of all before.
std::string packed(const std::string& key, const std::string& image) {
  std::string content(kMagic, sizeof kMagic);
  append(content, key.size());
  append(content, image.size());
  content += key;
  content += image;
  append(content, hash(content, kStart));
  return content;
}

std::optional<std::string> unpacked(const std::string& content, const std::string& key) {
  constexpr size_t kHead = sizeof kMagic + 16, kTail = 8;
  if (content.size() < kHead + kTail || content.compare(0, sizeof kMagic, kMagic, sizeof kMagic) != 0)
    return std::nullopt;
  const uint64_t key_bytes = number_at(content, sizeof kMagic),
                 image_bytes = number_at(content, sizeof kMagic + 8);
  const uint64_t rest = content.size() - kHead - kTail;
  if (key_bytes != key.size() || key_bytes > rest || image_bytes != rest - key_bytes) return std::nullopt;
  if (content.compare(kHead, key.size(), key) != 0) return std::nullopt;
  if (number_at(content, content.size() - kTail) != hash(content.substr(0, content.size() - kTail), kStart))
    return std::nullopt;
  return content.substr(kHead + key.size(), image_bytes);
}

}  // namespace

std::string image_folder() {
  if (const char* folder = std::getenv("MX_KERNEL_CACHE"); folder != nullptr) return folder;
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return std::string(cache) + "/mxrun/kernels";
  const char* const home = std::getenv("HOME");
  return home != nullptr && home[0] == '/' ? std::string(home) + "/.cache/mxrun/kernels" : "";
}

std::optional<std::string> cached_image(const std::string& folder, const std::string& key) try {
  if (folder.empty()) return std::nullopt;
  std::ifstream in(entry(folder, key), std::ios::binary);
  if (!in) return std::nullopt;
  const std::string content((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  return in.bad() ? std::nullopt : unpacked(content, key);
} catch (const std::exception&) {  // no memory, or a file of a special kind
  return std::nullopt;
}

void cache_image(const std::string& folder, const std::string& key, const std::string& image) noexcept try {
  if (folder.empty()) return;
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) return;
  static std::atomic<uint64_t> written{0};
  const fs::path target = entry(folder, key);
  const fs::path part =
      target.string() + "." + std::to_string(::getpid()) + "." + std::to_string(++written) + ".part";
  {
    std::ofstream out(part, std::ios::binary | std::ios::trunc);
    const std::string content = packed(key, image);
    out.write(content.data(), static_cast<std::streamsize>(content.size()));
    out.close();
    if (!out.fail()) fs::rename(part, target, failed);
    if (!out.fail() && !failed) return;
  }
  fs::remove(part, failed);
} catch (const std::exception&) {
}

}  // namespace mx::cuda
