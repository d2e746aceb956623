#include "ndarray/io/safetensors_header.h"

#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "engine/base/check.h"
#include "ndarray/io/io_error.h"

namespace mx::io::detail {
namespace {

using nlohmann::json;

constexpr const char* kMetadataKey = "__metadata__";

struct NamedType {
  const char* name;
  DType dtype;
};
constexpr NamedType kTypes[] = {{"F32", DType::f32},   {"F64", DType::f64}, {"F16", DType::f16},
                                {"BF16", DType::bf16}, {"I8", DType::i8},   {"U8", DType::u8},
                                {"I32", DType::i32},   {"I64", DType::i64}, {"BOOL", DType::bool_}};
constexpr const char* kOtherTypes[] = {"I16",     "U16",         "U32",        "U64",     "C64",
                                       "F4",      "F6_E2M3",     "F6_E3M2",    "F8_E4M3", "F8_E5M2",
                                       "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"};
constexpr const char* kTypeNames = "F32, F64, F16, BF16, I8, U8, I32, I64 or BOOL";

class Reader : public nlohmann::json_sax<json> {
 public:
  explicit Reader(const std::string& where) : where_(where) {}

  Header take() { return std::move(header_); }

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(number_integer_t value) override { return unexpected(std::to_string(value)); }
  bool number_float(number_float_t, const string_t& text) override { return unexpected(text); }
  bool binary(binary_t&) override { return unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    switch (state_) {
      case State::shape:
        check(value <= INT64_MAX, "a size below 2^63", std::to_string(value));
        check(tensor_.shape.rank() < kMaxRank, "at most " + std::to_string(kMaxRank) + " dimensions", "more");
        tensor_.shape.push_back(static_cast<int64_t>(value));
        return true;
      case State::offsets:
        check(offsets_ < 2, "two data_offsets", "more");
        (offsets_++ == 0 ? tensor_.begin : tensor_.end) = value;
        return true;
      default:
        return unexpected(std::to_string(value));
    }
  }

  bool string(string_t& text) override {
    switch (state_) {
      case State::dtype:
        tensor_.dtype = dtype_of_name(text);
        state_ = State::tensor;
        return true;
      case State::metadata_value:
        header_.metadata[key_] = text;
        state_ = State::metadata;
        return true;
      default:
        return unexpected("the string " + in_quotes(text));
    }
  }

  bool start_object(std::size_t) override {
    switch (state_) {
      case State::begin:
        state_ = State::top;
        return true;
      case State::tensor_value:
        tensor_ = {};
        tensor_.name = key_;
        seen_ = 0;
        state_ = State::tensor;
        return true;
      case State::metadata_object:
        state_ = State::metadata;
        return true;
      default:
        return unexpected("an object");
    }
  }

  bool key(string_t& text) override {
    switch (state_) {
      case State::top:
        check(names_.insert(text).second, "every name once", in_quotes(text) + " twice");
        key_ = text;
        state_ = text == kMetadataKey ? State::metadata_object : State::tensor_value;
        return true;
      case State::metadata:
        check(header_.metadata.find(text) == header_.metadata.end(), "every key of __metadata__ once",
              in_quotes(text) + " twice");
        key_ = text;
        state_ = State::metadata_value;
        return true;
      default:
        return field(text);
    }
  }

  bool end_object() override {
    switch (state_) {
      case State::tensor:
        check(seen_ == (kDtype | kShape | kOffsets), "dtype, shape and data_offsets", missing());
        header_.tensors.push_back(std::move(tensor_));
        state_ = State::top;
        return true;
      case State::metadata:
        state_ = State::top;
        return true;
      default:
        state_ = State::end;
        return true;
    }
  }

  bool start_array(std::size_t) override {
    switch (state_) {
      case State::shape_value:
        state_ = State::shape;
        return true;
      case State::offsets_value:
        offsets_ = 0;
        state_ = State::offsets;
        return true;
      default:
        return unexpected("an array");
    }
  }

  bool end_array() override {
    if (state_ == State::offsets) check(offsets_ == 2, "two data_offsets", std::to_string(offsets_));
    state_ = State::tensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string& token, const json::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 9: syntax error while ..."
    std::string reason = error.what();
    const size_t colon = reason.find(": ");
    if (colon != std::string::npos) reason = reason.substr(colon + 2);
    const size_t last_read = reason.find("; last read");
    if (last_read != std::string::npos) reason = reason.substr(0, last_read);
    throw FormatError(mx::detail::concat(where_, ": expected a header of UTF-8 JSON, got ", in_quotes(reason),
                                         " near ", in_quotes(token), ", byte ", position, " of the header"));
  }

 private:
  enum class State {
    begin,
    top,  // between the entries of the outermost object
    tensor_value,
    tensor,  // between the fields of a tensor
    dtype,
    shape_value,
    shape,
    offsets_value,
    offsets,
    metadata_object,
    metadata,
    metadata_value,
    end
  };
  enum Field { kDtype = 1, kShape = 2, kOffsets = 4 };

  std::string place() const {
    switch (state_) {
      case State::begin:
      case State::top:
      case State::end:
        return "";
      case State::metadata_object:
      case State::metadata:
      case State::metadata_value:
        return "__metadata__: ";
      case State::tensor_value:
        return "tensor " + in_quotes(key_) + ": ";
      default:
        return "tensor " + in_quotes(tensor_.name) + ": ";
    }
  }

  void check(bool condition, const std::string& expected, const std::string& got) const {
    MX_CHECK(condition, FormatError, where_, ": ", place(), "expected ", expected, ", got ", got);
  }

  bool unexpected(const std::string& got) const {
    const char* expected = "a JSON object";
    if (state_ == State::dtype) expected = "the name of a type";
    if (state_ == State::shape_value) expected = "an array for shape";
    if (state_ == State::shape) expected = "sizes that are whole numbers below 2^63";
    if (state_ == State::offsets_value) expected = "an array for data_offsets";
    if (state_ == State::offsets) expected = "offsets that are whole numbers below 2^64";
    if (state_ == State::metadata_value) expected = "a string";
    check(false, expected, got);
    return false;
  }

  bool field(const std::string& name) {
    const Field one = name == "dtype" ? kDtype : name == "shape" ? kShape : kOffsets;
    check(one != kOffsets || name == "data_offsets", "no field but dtype, shape and data_offsets",
          in_quotes(name));
    check((seen_ & one) == 0, "every field once", in_quotes(name) + " twice");
    seen_ |= one;
    state_ = one == kDtype ? State::dtype : one == kShape ? State::shape_value : State::offsets_value;
    return true;
  }

  std::string missing() const {
    if ((seen_ & kDtype) == 0) return "no dtype";
    return (seen_ & kShape) == 0 ? "no shape" : "no data_offsets";
  }

  DType dtype_of_name(const std::string& name) const {
    for (const NamedType& type : kTypes)
      if (name == type.name) return type.dtype;
    for (const char* other : kOtherTypes)
      check(name != other, std::string("a supported type (") + kTypeNames + ")",
            name + ", which mxrun does not have");
    check(false, std::string("one of the types ") + kTypeNames, in_quotes(name));
    return DType::f32;
  }

  const std::string& where_;
  Header header_;
  HeaderTensor tensor_;
  std::unordered_set<std::string> names_;
  std::string key_;
  State state_ = State::begin;
  int seen_ = 0;
  int offsets_ = 0;
};

}  // namespace

Header parse_header(std::string_view text, const std::string& where) {
  // The parser takes a byte of value 0 for the end of the text.
  const size_t zero = text.find('\0');
  MX_CHECK(zero == std::string_view::npos, FormatError, where,
           ": expected a header of UTF-8 JSON, got a byte of value 0, byte ", zero, " of the header");
  Reader reader(where);
  json::sax_parse(text.begin(), text.end(), &reader);
  return reader.take();
}

std::string json_string(const std::string& text) { return json(text).dump(); }

}  // namespace mx::io::detail
