#include "comm/rendezvous/protocol.h"

#include <algorithm>
#include <utility>

#include "comm/net/bytes.h"
#include "engine/base/check.h"
#include "engine/base/error.h"

namespace mx::comm {
namespace {

constexpr size_t kFrameKindAt = 4, kFrameZeroAt = 5, kKeyBytesAt = 6, kRequestAt = 8, kNumberAt = 16;
constexpr size_t kFrameSizeBytes = 4;

}  // namespace

const char* to_string(FrameKind kind) {
  static constexpr const char* kNames[kFrameKinds] = {"join",    "put",       "get",      "cancel", "watch",
                                                      "unwatch", "heartbeat", "farewell", "done",   "value",
                                                      "changed", "error",     "tell"};
  const auto index = static_cast<size_t>(kind) - 1;
  return index < kFrameKinds ? kNames[index] : "unknown";
}

void encode(const Frame& frame, std::string& out) {
  MX_ASSERT(frame.key.size() <= Rendezvous::kLongestKey && frame.value.size() <= Rendezvous::kLongestValue);
  uint8_t header[kFrameHeaderBytes] = {};
  const size_t bytes = kFrameHeaderBytes + frame.key.size() + frame.value.size();
  store_little<uint32_t>(header, static_cast<uint32_t>(bytes - kFrameSizeBytes));
  header[kFrameKindAt] = static_cast<uint8_t>(frame.kind);
  store_little<uint16_t>(header + kKeyBytesAt, static_cast<uint16_t>(frame.key.size()));
  store_little<uint64_t>(header + kRequestAt, frame.request);
  store_little<int64_t>(header + kNumberAt, frame.number);
  out.append(reinterpret_cast<const char*>(header), sizeof header);
  out += frame.key;
  out += frame.value;
}

std::string encode(const Frame& frame) {
  std::string out;
  encode(frame, out);
  return out;
}

void FrameDecoder::receive(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    // First the header, then the rest, so that no more is stored than the checked sizes announce.
    size_t wanted = kFrameHeaderBytes;
    const auto* header = reinterpret_cast<const uint8_t*>(buffer_.data());
    if (buffer_.size() >= kFrameHeaderBytes) wanted = load_little<uint32_t>(header) + kFrameSizeBytes;
    const size_t part = std::min(bytes.size(), wanted - buffer_.size());
    buffer_.append(reinterpret_cast<const char*>(bytes.data()), part);
    bytes = bytes.subspan(part);
    if (buffer_.size() < kFrameHeaderBytes) return;

    header = reinterpret_cast<const uint8_t*>(buffer_.data());
    const size_t size = size_t{load_little<uint32_t>(header)} + kFrameSizeBytes;
    const size_t key_bytes = load_little<uint16_t>(header + kKeyBytesAt);
    const uint8_t kind = header[kFrameKindAt];
    MX_CHECK(size >= kFrameHeaderBytes && size <= kLongestFrame, ProtocolError,
             "[rendezvous] expected a frame of ", kFrameHeaderBytes, " to ", kLongestFrame, " bytes, got ",
             size);
    MX_CHECK(kind >= 1 && kind <= kFrameKinds && header[kFrameZeroAt] == 0, ProtocolError,
             "[rendezvous] expected a kind of frame of 1 to ", int{kFrameKinds}, ", got ", int{kind});
    MX_CHECK(key_bytes <= Rendezvous::kLongestKey && key_bytes <= size - kFrameHeaderBytes, ProtocolError,
             "[rendezvous] expected a key of at most ",
             std::min(Rendezvous::kLongestKey, size - kFrameHeaderBytes), " bytes, got ", key_bytes);
    MX_CHECK(size - kFrameHeaderBytes - key_bytes <= Rendezvous::kLongestValue, ProtocolError,
             "[rendezvous] expected a value of at most ", Rendezvous::kLongestValue, " bytes, got ",
             size - kFrameHeaderBytes - key_bytes);
    if (buffer_.size() < size) continue;
    Frame frame;
    frame.kind = static_cast<FrameKind>(kind);
    frame.request = load_little<uint64_t>(header + kRequestAt);
    frame.number = load_little<int64_t>(header + kNumberAt);
    frame.key = buffer_.substr(kFrameHeaderBytes, key_bytes);
    frame.value = buffer_.substr(kFrameHeaderBytes + key_bytes);
    frames_.push_back(std::move(frame));
    buffer_.clear();
  }
}

std::optional<Frame> FrameDecoder::next() {
  if (frames_.empty()) return std::nullopt;
  Frame frame = std::move(frames_.front());
  frames_.pop_front();
  return frame;
}

}  // namespace mx::comm
