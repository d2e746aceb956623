#include "kvstore/server/wire.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "engine/base/check.h"
#include "engine/base/error.h"

namespace mx::kv {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are sent as they lie in memory");

template <class T>
void put_at(std::byte* at, T value) {
  for (size_t i = 0; i < sizeof(T); ++i)
    at[i] = static_cast<std::byte>(static_cast<uint64_t>(value) >> (8 * i));
}

template <class T>
T get_at(const std::byte* at) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value |= static_cast<uint64_t>(at[i]) << (8 * i);
  return static_cast<T>(value);
}

constexpr size_t kMostOptions = 256;
constexpr size_t kMostDimensions = 64;
constexpr size_t kMostStateArrays = 64;

/// Appends fields to a body.
class BodyWriter {
 public:
  template <class T>
  BodyWriter& number(T value) {
    std::byte bytes[sizeof(T)];
    put_at(bytes, value);
    text_.append(reinterpret_cast<const char*>(bytes), sizeof(T));
    return *this;
  }
  BodyWriter& real(double value) { return number(std::bit_cast<uint64_t>(value)); }
  BodyWriter& string(std::string_view value) {
    number(static_cast<uint32_t>(value.size()));
    text_.append(value);
    return *this;
  }
  BodyWriter& blob(std::string_view value) {
    number(static_cast<uint64_t>(value.size()));
    text_.append(value);
    return *this;
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

/// Reads fields from a body; every size is compared with what is left before it is used.
class BodyReader {
 public:
  BodyReader(std::string_view rest, const char* what) : rest_(rest), what_(what) {}

  template <class T>
  T number() {
    need(sizeof(T));
    const T value = get_at<T>(reinterpret_cast<const std::byte*>(rest_.data()));
    rest_.remove_prefix(sizeof(T));
    return value;
  }
  double real() { return std::bit_cast<double>(number<uint64_t>()); }
  bool boolean() {
    const auto value = number<uint8_t>();
    MX_CHECK(value <= 1, ProtocolError, "[kvstore] expected 0 or 1 in a ", what_, ", got ", int{value});
    return value == 1;
  }
  std::string string() {
    const auto size = number<uint32_t>();
    MX_CHECK(size <= kLongestName, ProtocolError, "[kvstore] expected a name of at most ", kLongestName,
             " bytes in a ", what_, ", got ", size);
    return std::string(part(size));
  }
  std::string_view blob() { return part(number<uint64_t>()); }
  comm::Type type() {
    const auto value = number<uint8_t>();
    MX_CHECK(value < comm::kTypes, ProtocolError, "[kvstore] expected a type below ", comm::kTypes, " in a ",
             what_, ", got ", int{value});
    return static_cast<comm::Type>(value);
  }
  size_t count(size_t most) {
    const auto value = number<uint32_t>();
    MX_CHECK(value <= most, ProtocolError, "[kvstore] expected at most ", most, " entries in a ", what_,
             ", got ", value);
    return value;
  }
  void end() const {
    MX_CHECK(rest_.empty(), ProtocolError, "[kvstore] expected the end of a ", what_, ", got ", rest_.size(),
             " more bytes");
  }

 private:
  void need(uint64_t bytes) const {
    MX_CHECK(bytes <= rest_.size(), ProtocolError, "[kvstore] expected ", bytes, " more bytes in a ", what_,
             ", got ", rest_.size());
  }
  std::string_view part(uint64_t bytes) {
    need(bytes);
    const std::string_view found = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return found;
  }

  std::string_view rest_;
  const char* what_;
};

enum class OptionTag : uint8_t { none, boolean, integer, real, unsigned_integer };

void put_option(BodyWriter& writer, const std::string& name, const AttrValue& value) {
  writer.string(name);
  const auto tag = [&](OptionTag t) { writer.number(static_cast<uint8_t>(t)); };
  if (std::holds_alternative<std::monostate>(value)) {
    tag(OptionTag::none);
  } else if (const auto* b = std::get_if<bool>(&value)) {
    tag(OptionTag::boolean);
    writer.number(static_cast<uint8_t>(*b ? 1 : 0));
  } else if (const auto* i = std::get_if<int64_t>(&value)) {
    tag(OptionTag::integer);
    writer.number(*i);
  } else if (const auto* d = std::get_if<double>(&value)) {
    tag(OptionTag::real);
    writer.real(*d);
  } else if (const auto* u = std::get_if<uint64_t>(&value)) {
    tag(OptionTag::unsigned_integer);
    writer.number(*u);
  } else {
    throw InvalidArgument(mx::detail::concat("[set_optimizer] expected a number for option \"", name,
                                             "\", got ", mx::to_string(value),
                                             "; servers accept numbers only"));
  }
}

AttrValue get_option(BodyReader& reader) {
  const auto tag = reader.number<uint8_t>();
  switch (static_cast<OptionTag>(tag)) {
    case OptionTag::none:
      return std::monostate();
    case OptionTag::boolean:
      return reader.boolean();
    case OptionTag::integer:
      return reader.number<int64_t>();
    case OptionTag::real:
      return reader.real();
    case OptionTag::unsigned_integer:
      return reader.number<uint64_t>();
  }
  throw ProtocolError(mx::detail::concat("[kvstore] expected an option of a known type, got ", int{tag}));
}

}  // namespace

const char* to_string(Kind kind) {
  constexpr const char* names[] = {"?",       "open",      "declare",   "init",          "push",
                                   "pull",    "pushpull",  "erase",     "set_optimizer", "set_option",
                                   "barrier", "get_state", "set_state", "set_value",     "missing",
                                   "failed",  "close",     "hello",     "farewell",      "abort",
                                   "answer",  "refusal"};
  const auto index = static_cast<size_t>(kind);
  return index < std::size(names) ? names[index] : names[0];
}

const char* to_string(BarrierOf call) {
  constexpr const char* names[] = {"barrier", "save", "load", "state_dict", "load_state_dict"};
  const auto index = static_cast<size_t>(call);
  return index < std::size(names) ? names[index] : "?";
}

void encode(const Header& header, std::byte (&out)[kHeaderBytes]) {
  put_at(out, kMagic);
  put_at(out + 4, static_cast<uint8_t>(header.kind));
  put_at(out + 5, header.flags);
  put_at(out + 6, header.store);
  put_at(out + 8, header.worker);
  put_at(out + 12, header.key);
  put_at(out + 16, header.incarnation);
  put_at(out + 24, header.sequence);
  put_at(out + 32, header.number);
  put_at(out + 40, header.bytes);
}

Header decode_header(std::span<const std::byte, kHeaderBytes> bytes) {
  const std::byte* at = bytes.data();
  const auto magic = get_at<uint32_t>(at);
  MX_CHECK(magic == kMagic, ProtocolError, "[kvstore] expected a message that begins with ", kMagic, ", got ",
           magic);
  const auto kind = get_at<uint8_t>(at + 4);
  MX_CHECK(kind >= 1 && kind <= kLastKind, ProtocolError, "[kvstore] expected a message of kind 1 to ",
           int{kLastKind}, ", got ", int{kind});
  const Header header{.kind = static_cast<Kind>(kind),
                      .flags = get_at<uint8_t>(at + 5),
                      .store = get_at<uint16_t>(at + 6),
                      .worker = get_at<uint32_t>(at + 8),
                      .key = get_at<uint32_t>(at + 12),
                      .incarnation = get_at<uint64_t>(at + 16),
                      .sequence = get_at<uint64_t>(at + 24),
                      .number = get_at<uint64_t>(at + 32),
                      .bytes = get_at<uint64_t>(at + 40)};
  MX_CHECK(header.bytes <= kLargestBody, ProtocolError, "[kvstore] expected a body of at most ", kLargestBody,
           " bytes, got ", header.bytes, " in a ", to_string(header.kind));
  return header;
}

// Errors.

ErrorCode code_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const InvalidArgument&) {
    return ErrorCode::invalid_argument;
  } catch (const InvalidState&) {
    return ErrorCode::invalid_state;
  } catch (const OutOfMemory&) {
    return ErrorCode::out_of_memory;
  } catch (const Timeout&) {
    return ErrorCode::timeout;
  } catch (const Cancelled&) {
    return ErrorCode::cancelled;
  } catch (const OperationError&) {
    return ErrorCode::operation;
  } catch (const WorkerLeft&) {
    return ErrorCode::worker_left;
  } catch (const PeerLost&) {
    return ErrorCode::peer_lost;
  } catch (const ProtocolError&) {
    return ErrorCode::protocol;
  } catch (const AuthenticationError&) {
    return ErrorCode::authentication;
  } catch (const CommunicationError&) {
    return ErrorCode::communication;
  } catch (const NumericError&) {
    return ErrorCode::numeric;
  } catch (...) {
    return ErrorCode::error;
  }
}

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (...) {
    return current_exception_text();
  }
}

std::exception_ptr make_error(uint8_t code, const std::string& text) {
  switch (static_cast<ErrorCode>(code)) {
    case ErrorCode::invalid_argument:
      return std::make_exception_ptr(InvalidArgument(text));
    case ErrorCode::invalid_state:
      return std::make_exception_ptr(InvalidState(text));
    case ErrorCode::out_of_memory:
      return std::make_exception_ptr(OutOfMemory(text));
    case ErrorCode::timeout:
      return std::make_exception_ptr(Timeout(text));
    case ErrorCode::cancelled:
      return std::make_exception_ptr(Cancelled(text));
    case ErrorCode::operation:
      return std::make_exception_ptr(OperationError(text));
    case ErrorCode::communication:
      return std::make_exception_ptr(CommunicationError(text));
    case ErrorCode::peer_lost:
      return std::make_exception_ptr(PeerLost(text));
    case ErrorCode::protocol:
      return std::make_exception_ptr(ProtocolError(text));
    case ErrorCode::authentication:
      return std::make_exception_ptr(AuthenticationError(text));
    case ErrorCode::numeric:
      return std::make_exception_ptr(NumericError(text));
    case ErrorCode::worker_left:
      return std::make_exception_ptr(WorkerLeft(text));
    case ErrorCode::error:
      break;
  }
  return std::make_exception_ptr(Error(text));
}

// Bodies.

std::string encode(const OpenBody& body) {
  return BodyWriter()
      .number(body.version)
      .number(body.workers)
      .number(static_cast<uint8_t>(body.sync ? 1 : 0))
      .number(body.staleness)
      .number(body.piece_bytes)
      .take();
}

OpenBody decode_open(std::string_view bytes) {
  BodyReader reader(bytes, "request to open a store");
  OpenBody body;
  body.version = reader.number<uint32_t>();
  MX_CHECK(body.version == kVersion, ProtocolError, "[kvstore] expected version ", kVersion,
           " of the protocol, got ", body.version);
  body.workers = reader.number<uint32_t>();
  body.sync = reader.boolean();
  body.staleness = reader.number<int64_t>();
  body.piece_bytes = reader.number<uint64_t>();
  reader.end();
  MX_CHECK(body.workers >= 1 && body.workers <= 65536, ProtocolError,
           "[kvstore] expected 1 to 65536 workers, got ", body.workers);
  MX_CHECK(body.piece_bytes >= 1 && body.piece_bytes <= kLargestBody, ProtocolError,
           "[kvstore] expected pieces of 1 to ", kLargestBody, " bytes, got ", body.piece_bytes);
  return body;
}

std::string encode(const KeyBody& body) {
  BodyWriter writer;
  writer.string(body.name)
      .number(static_cast<uint8_t>(body.type))
      .number(static_cast<uint32_t>(body.shape.size()));
  for (int64_t size : body.shape) writer.number(size);
  writer.number(body.begin).number(body.count).number(static_cast<uint8_t>(body.stored ? 1 : 0));
  return writer.take();
}

KeyBody decode_key(std::string_view bytes) {
  BodyReader reader(bytes, "description of a key");
  KeyBody key;
  key.name = reader.string();
  key.type = reader.type();
  key.shape.resize(reader.count(kMostDimensions));
  uint64_t elements = 1;
  for (int64_t& size : key.shape) {
    size = reader.number<int64_t>();
    const bool fits =
        size >= 0 && (size == 0 || elements <= (uint64_t{1} << 60) / static_cast<uint64_t>(size));
    MX_CHECK(fits, ProtocolError, "[kvstore] expected a possible shape of key '", key.name, "', got size ",
             size);
    elements *= static_cast<uint64_t>(size);
  }
  key.begin = reader.number<uint64_t>();
  key.count = reader.number<uint64_t>();
  key.stored = reader.boolean();
  reader.end();
  MX_CHECK(key.begin <= elements && key.count <= elements - key.begin, ProtocolError,
           "[kvstore] expected a piece within the ", elements, " elements of key '", key.name, "', got ",
           key.count, " from ", key.begin);
  return key;
}

std::string describe(const KeyBody& key) {
  std::string text = mx::detail::concat(comm::to_string(key.type), " (");
  for (size_t i = 0; i < key.shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(key.shape[i]);
  return text + ") '" + key.name + "'";
}

std::string encode(const OptionsBody& body) {
  MX_CHECK(body.options.size() <= kMostOptions, InvalidArgument, "[set_optimizer] expected at most ",
           kMostOptions, " options, got ", body.options.size());
  BodyWriter writer;
  writer.string(body.name).number(static_cast<uint32_t>(body.options.size()));
  for (const auto& [name, value] : body.options) put_option(writer, name, value);
  return writer.take();
}

OptionsBody decode_options(std::string_view bytes) {
  BodyReader reader(bytes, "list of options");
  OptionsBody body;
  body.name = reader.string();
  for (size_t left = reader.count(kMostOptions); left > 0; --left) {
    std::string name = reader.string();
    AttrValue value = get_option(reader);
    MX_CHECK(body.options.emplace(name, value).second, ProtocolError, "[kvstore] expected option '", name,
             "' once, got it twice");
  }
  reader.end();
  return body;
}

std::string encode(const std::vector<StateArray>& state) {
  BodyWriter writer;
  writer.number(static_cast<uint32_t>(state.size()));
  for (const StateArray& array : state)
    writer.string(array.name)
        .number(static_cast<uint8_t>(array.type))
        .number(static_cast<uint8_t>(array.scalar ? 1 : 0))
        .blob(array.elements);
  return writer.take();
}

std::vector<StateArray> decode_state(std::string_view bytes) {
  BodyReader reader(bytes, "state of an optimiser");
  std::vector<StateArray> state;
  for (size_t left = reader.count(kMostStateArrays); left > 0; --left) {
    StateArray array;
    array.name = reader.string();
    array.type = reader.type();
    array.scalar = reader.boolean();
    array.elements = std::string(reader.blob());
    MX_CHECK(array.elements.size() % comm::size_of(array.type) == 0, ProtocolError,
             "[kvstore] expected whole elements of ", comm::to_string(array.type), ", got ",
             array.elements.size(), " bytes");
    state.push_back(std::move(array));
  }
  reader.end();
  return state;
}

// Decoder.

std::span<std::byte> Decoder::space() {
  if (in_body_) return {message_.body.data + have_, message_.body.size - have_};
  return {header_bytes_ + have_, kHeaderBytes - have_};
}

bool Decoder::filled(size_t bytes) {
  have_ += bytes;
  if (!in_body_) {
    if (have_ < kHeaderBytes) return false;
    message_.header = decode_header(header_bytes_);
    message_.body = accept_(message_.header);
    MX_ASSERT(message_.body.size == message_.header.bytes);
    have_ = 0;
    in_body_ = true;
  }
  return have_ == message_.body.size;
}

Message Decoder::take() {
  in_body_ = false;
  have_ = 0;
  return std::move(message_);
}

}  // namespace mx::kv
