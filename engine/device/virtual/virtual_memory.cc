#include "engine/device/virtual/virtual_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "engine/base/check.h"
#include "engine/device/host_stream.h"

namespace mx {

namespace {

constexpr size_t kMinRange = size_t{4} << 30;

size_t whole_pages(size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

}  // namespace

VirtualMemory::VirtualMemory(size_t capacity_bytes)
    : range_(whole_pages(std::max(capacity_bytes, kMinRange))), capacity_(capacity_bytes) {
  file_ = memfd_create("mx-virtual-device", MFD_CLOEXEC);
  bool ok = file_ >= 0 && ftruncate(file_, static_cast<off_t>(range_)) == 0;
  if (ok) {
    void* base = mmap(nullptr, range_, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file_, 0);
    void* alias = mmap(nullptr, range_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_, 0);
    base_ = base != MAP_FAILED ? static_cast<char*>(base) : nullptr;
    alias_ = alias != MAP_FAILED ? static_cast<char*>(alias) : nullptr;
    ok = base_ != nullptr && alias_ != nullptr;
  }
  if (!ok) {
    const int error = errno;
    if (base_ != nullptr) munmap(base_, range_);
    if (alias_ != nullptr) munmap(alias_, range_);
    if (file_ >= 0) close(file_);
    throw DeviceError(detail::concat("[virtual device] expected ", range_,
                                     " bytes of address space, got none: ", std::strerror(error)));
  }
  free_.emplace(0, range_);
}

VirtualMemory::~VirtualMemory() {
  munmap(base_, range_);
  munmap(alias_, range_);
  close(file_);
}

void* VirtualMemory::reserve(size_t bytes) {
  size_t offset = 0;
  {
    std::lock_guard lock(mutex_);
    if (reserved_ + bytes > capacity_.load(std::memory_order_relaxed)) return nullptr;
    const auto fits = [&](const auto& range) { return range.second >= bytes; };
    const auto it = std::find_if(free_.begin(), free_.end(), fits);
    if (it == free_.end()) return nullptr;
    offset = it->first;
    const size_t rest = it->second - bytes;
    free_.erase(it);
    if (rest > 0) free_.emplace(offset + bytes, rest);
    reserved_ += bytes;
  }
  poison(base_ + offset, bytes);
  return base_ + offset;
}

void VirtualMemory::release(void* segment, size_t bytes) noexcept {
  size_t offset = static_cast<size_t>(static_cast<char*>(segment) - base_);
  // Returns the pages to the system. The next use of the range gets new pages and poisons them.
  [[maybe_unused]] const int rc = fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                            static_cast<off_t>(offset), static_cast<off_t>(bytes));
  std::lock_guard lock(mutex_);
  reserved_ -= bytes;
  auto next = free_.lower_bound(offset);
  if (next != free_.begin()) {
    if (const auto previous = std::prev(next); previous->first + previous->second == offset) {
      offset = previous->first;
      bytes += previous->second;
      free_.erase(previous);
    }
  }
  if (next != free_.end() && next->first == offset + bytes) {
    bytes += next->second;
    free_.erase(next);
  }
  free_.emplace(offset, bytes);
}

void VirtualMemory::retire(void* block, size_t bytes, std::span<Stream* const> users) {
  auto left = std::make_shared<std::atomic<size_t>>(users.size());
  const auto end_of_use = [this, block, bytes, left] {
    if (left->fetch_sub(1, std::memory_order_acq_rel) == 1) poison(block, bytes);
  };
  if (users.empty()) poison(block, bytes);
  for (Stream* user : users) {
    auto* host_stream = dynamic_cast<HostStream*>(user);
    if (host_stream != nullptr && host_stream->idle()) {
      end_of_use();
    } else if (host_stream != nullptr) {
      host_stream->append({.kind = HostWork::Kind::internal,
                           .bytes = 0,
                           .injected = {},
                           .task = [end_of_use](KernelContext&) { end_of_use(); }});
    } else {
      user->submit([end_of_use](KernelContext&) { end_of_use(); });
    }
  }
}

void VirtualMemory::set_capacity(size_t bytes) {
  MX_CHECK(bytes <= range_, InvalidArgument, "[virtual device] expected a capacity of at most ", range_,
           " bytes, the address space reserved at its start, got ", bytes);
  capacity_.store(bytes, std::memory_order_relaxed);
}

bool VirtualMemory::contains(const void* address, size_t bytes) const noexcept {
  const auto* p = static_cast<const char*>(address);
  return p >= base_ && bytes <= range_ && p <= base_ + range_ - bytes;
}

void VirtualMemory::poison(void* block, size_t bytes) noexcept {
  std::memset(static_cast<char*>(block) + alias_offset(), kVirtualPoison, bytes);
}

}  // namespace mx
