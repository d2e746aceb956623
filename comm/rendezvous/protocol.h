// Frames: the messages between the clients of a rendezvous and its server, after the handshake.
//
// All frames have one layout, little-endian:
//
//   u32 bytes that follow | u8 kind | u8 0 | u16 bytes of the key | u64 request | i64 number | key | value
//
// The sizes are checked before anything is stored, so a remote can make a decoder hold at most
// kLongestFrame bytes. docs/wire.md describes the kinds.
//
// Thread-safety: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>

#include "comm/rendezvous.h"

namespace mx::comm {

enum class FrameKind : uint8_t {
  // From a client.
  join = 1,   ///< the first frame; key: role, value: host
  put,        ///< key, value -> done or error
  get,        ///< key -> value as soon as the entry exists, or error
  cancel,     ///< the request of a get -> done, if it was not answered yet
  watch,      ///< key: prefix -> changed for every entry, then and later
  unwatch,    ///< number: request of a watch -> done
  heartbeat,  ///< number: step -> heartbeat
  farewell,   ///< -> done; the end of the connection is then no loss
  // From the server.
  done,     ///< of a request
  value,    ///< of a get
  changed,  ///< key, value; request: of the watch
  error,    ///< value: message, number: ErrorCode; request 0: the server ends the connection
  // From a client.
  tell,  ///< key, value -> done or error
};
inline constexpr uint8_t kFrameKinds = 13;

enum class ErrorCode : int64_t { invalid_argument = 1, invalid_state = 2, protocol = 3, lost = 4 };

struct Frame {
  FrameKind kind = FrameKind::done;
  uint64_t request = 0;
  int64_t number = 0;
  std::string key, value;
  friend bool operator==(const Frame&, const Frame&) = default;
};

inline constexpr size_t kFrameHeaderBytes = 24;
inline constexpr size_t kLongestFrame =
    kFrameHeaderBytes + Rendezvous::kLongestKey + Rendezvous::kLongestValue;

const char* to_string(FrameKind kind);

/// Appends the bytes of a frame. Precondition: key and value are within the limits of Rendezvous.
void encode(const Frame& frame, std::string& out);
std::string encode(const Frame& frame);

/// Cuts a stream of bytes into frames.
class FrameDecoder {
 public:
  /// Takes the next bytes. Throws ProtocolError for malformed frames; the decoder is then unusable.
  void receive(std::span<const std::byte> bytes);
  /// Returns the next complete frame.
  std::optional<Frame> next();
  /// Bytes of the frame that is not complete yet.
  size_t partial_bytes() const { return buffer_.size(); }

 private:
  std::string buffer_;
  std::deque<Frame> frames_;
};

}  // namespace mx::comm
