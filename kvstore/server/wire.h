// The messages between workers and servers. Internal; docs/wire.md describes the format.
//
// A message is a header of kHeaderBytes bytes and a body. All numbers are little-endian, on every machine.
// Elements of arrays are sent as they lie in memory, so both sides must be little-endian machines; open
// compares that. There is no code on the wire: names, numbers and elements only.
//
//   offset  bytes  field
//        0      4  magic "MXKV"
//        4      1  kind
//        5      1  flags (error code of a refusal)
//        6      2  store: the number of the store among those of the process
//        8      4  worker
//       12      4  key
//       16      8  incarnation
//       24      8  sequence
//       32      8  number: depends on the kind
//       40      8  bytes of the body
//
// Reading is a state machine without sockets (Decoder): it gets bytes in portions of any size. It checks a
// header completely, and asks for the largest body that is allowed, before memory for a body is allocated.
//
// Thread-safety: values without shared state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/type.h"
#include "engine/base/error.h"
#include "kvstore/server/bytes.h"
#include "ndarray/attrs.h"

namespace mx::kv {

inline constexpr size_t kHeaderBytes = 48;
inline constexpr uint32_t kMagic = 0x564b584d;  // "MXKV"
inline constexpr uint32_t kVersion = 2;
/// Larger bodies are refused, whatever a key's size is.
inline constexpr uint64_t kLargestBody = uint64_t{1} << 30;
/// Largest body of messages without elements: names, options, errors.
inline constexpr uint64_t kLargestText = 64 * 1024;

enum class Kind : uint8_t {
  // Requests. Each is answered by an `answer` or a `refusal` with the same store, key and sequence.
  open = 1,       ///< first message for a store; body: OpenBody
  declare,        ///< makes a key; body: KeyBody
  init,           ///< the key's first value, from worker 0 only; body: elements
  push,           ///< body: elements; number: divisor of the sum, 0 for 1
  pull,           ///< answer's body: elements
  pushpull,       ///< push, whose answer has the new value as its body
  erase,          ///< removes a key
  set_optimizer,  ///< body: name and options
  set_option,     ///< body: one option
  barrier,        ///< flags: BarrierOf; body: empty, or an error text that all get; number: its error code
  get_state,      ///< answer's body: state of the optimiser for a key
  set_state,      ///< body: state of the optimiser for a key; from worker 0 only
  set_value,      ///< replaces a key's value; from worker 0 only; body: elements
  missing,        ///< asks for whom request `sequence` for key `number` waits; answer's body: text
  failed,         ///< instead of a push: the worker's value has failed; flags: ErrorCode; body: text
  close,          ///< the worker leaves the store
  hello,          ///< first message of a connection; body: name of the worker's host; no answer
  farewell,       ///< the worker's process ends; no answer
  abort,          ///< the worker fails; all workers get the error; flags: ErrorCode; body: text; no answer
  // Answers.
  answer,
  refusal,  ///< flags: ErrorCode; body: text; number: 1 + the worker that caused it, 0 for none
};
inline constexpr uint8_t kLastKind = static_cast<uint8_t>(Kind::refusal);

const char* to_string(Kind kind);

/// The call of the program that makes a barrier.
enum class BarrierOf : uint8_t { barrier, save, load, state_dict, load_state_dict };
/// "barrier", "save", ...; "?" for another number.
const char* to_string(BarrierOf call);

struct Header {
  Kind kind = Kind::answer;
  uint8_t flags = 0;
  uint16_t store = 0;
  uint32_t worker = 0;
  uint32_t key = 0;
  uint64_t incarnation = 0;
  uint64_t sequence = 0;
  uint64_t number = 0;
  uint64_t bytes = 0;
};

/// Of keys and of options. Longer ones are a ProtocolError.
inline constexpr size_t kLongestName = 4096;

struct Message {
  Header header;
  Bytes body;
};

void encode(const Header& header, std::byte (&out)[kHeaderBytes]);
/// Throws ProtocolError for a wrong magic, an unknown kind, and a body beyond kLargestBody.
Header decode_header(std::span<const std::byte, kHeaderBytes> bytes);

/// The type of an error. Error keeps its type on its way to a worker.
enum class ErrorCode : uint8_t {
  error = 1,
  invalid_argument,
  invalid_state,
  out_of_memory,
  timeout,
  cancelled,
  operation,
  communication,
  peer_lost,
  protocol,
  authentication,
  numeric,
  worker_left,
};
/// A worker has left a store. Unlike other losses, it concerns this store only.
class WorkerLeft : public PeerLost {
 public:
  using PeerLost::PeerLost;
};
/// Returns the code of an error; ErrorCode::error for foreign types.
ErrorCode code_of(const std::exception_ptr& error);
std::string text_of(const std::exception_ptr& error);
/// Makes the error again. An unknown code makes an mx::Error.
std::exception_ptr make_error(uint8_t code, const std::string& text);

/// What all workers must agree on when they open a store.
struct OpenBody {
  uint32_t version = kVersion;
  uint32_t workers = 0;
  bool sync = true;
  int64_t staleness = -1;
  uint64_t piece_bytes = 0;  ///< the largest body of elements
};
std::string encode(const OpenBody& body);
/// Throws ProtocolError for a body that is malformed. The decoders below do as well.
OpenBody decode_open(std::string_view bytes);

/// The description of a key, or of the piece of a key that a server holds.
struct KeyBody {
  std::string name{};
  comm::Type type = comm::Type::f32;
  std::vector<int64_t> shape{};  ///< of the whole key
  uint64_t begin = 0;            ///< first element of the piece
  uint64_t count = 0;            ///< elements of the piece
  bool stored = true;            ///< false: only sums pass through it (allreduce); no optimiser is applied
};
std::string encode(const KeyBody& body);
KeyBody decode_key(std::string_view bytes);
/// "f32 (2, 3) 'fc1.weight'", for messages.
std::string describe(const KeyBody& key);

struct OptionsBody {
  std::string name;
  AttrMap options;
};
/// Throws InvalidArgument for options that are not bool, integer or floating-point numbers.
std::string encode(const OptionsBody& body);
OptionsBody decode_options(std::string_view bytes);

/// One array of an optimiser's state.
struct StateArray {
  std::string name;
  comm::Type type = comm::Type::f32;
  bool scalar = false;  ///< of rank 0, instead of one element for each of the key's
  std::string elements;
};
std::string encode(const std::vector<StateArray>& state);
std::vector<StateArray> decode_state(std::string_view bytes);

/// Reads messages from a stream of bytes.
class Decoder {
 public:
  /// Returns memory for the body of a message with this header. Throws if the header is not acceptable; the
  /// decoder must not be used afterwards.
  using Accept = std::function<Bytes(const Header& header)>;
  explicit Decoder(Accept accept) : accept_(std::move(accept)) {}

  /// Returns where the next bytes of the stream belong. Never empty. A reader may fill any part of it and
  /// must then call filled().
  std::span<std::byte> space();
  /// Takes `bytes` bytes that were written to space(). Returns true if a message is complete; take() must be
  /// called before the next space(). Throws ProtocolError for a malformed header, and what Accept throws.
  bool filled(size_t bytes);
  Message take();
  /// Returns true if no part of a message has been read, so the stream may end here.
  bool between_messages() const { return !in_body_ && have_ == 0; }

 private:
  Accept accept_;
  std::byte header_bytes_[kHeaderBytes]{};
  Message message_;
  bool in_body_ = false;
  size_t have_ = 0;  // bytes of the header or of the body that have been read
};

}  // namespace mx::kv
