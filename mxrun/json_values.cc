#include "mxrun/json_values.h"

#include <algorithm>
#include <limits>

namespace mx::launch {

using nlohmann::json;

const json& member(const json& object, const char* name) {
  MX_CHECK(object.is_object(), ProtocolError, "expected an object");
  const auto found = object.find(name);
  MX_CHECK(found != object.end(), ProtocolError, "expected the member '", name, "'");
  return *found;
}

const json& list_of(const json& object, const char* name) {
  const json& value = member(object, name);
  MX_CHECK(value.is_array(), ProtocolError, "'", name, "': expected a list");
  return value;
}

const json& tuple(const json& list, size_t size, const char* name) {
  MX_CHECK(list.is_array() && list.size() == size, ProtocolError, "'", name, "': expected lists of ", size,
           " values");
  return list;
}

int64_t whole_number(const json& value, const char* name, int64_t least, int64_t most) {
  constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() || value.get<uint64_t>() <= kMost) &&
                    value.get<int64_t>() >= least && value.get<int64_t>() <= most;
  MX_CHECK(fits, ProtocolError, "'", name, "': expected a whole number from ", least, " to ", most);
  return value.get<int64_t>();
}

std::string text_value(const json& value, const char* name) {
  MX_CHECK(value.is_string(), ProtocolError, "'", name, "': expected a text");
  return value.get<std::string>();
}

bool flag_of(const json& object, const char* name) {
  const json& value = member(object, name);
  MX_CHECK(value.is_boolean(), ProtocolError, "'", name, "': expected true or false");
  return value.get<bool>();
}

std::string text_of(const json& object, const char* name) { return text_value(member(object, name), name); }

std::string name_of(const json& object, const char* name, size_t longest) {
  std::string text = text_of(object, name);
  const bool in_a_line = std::none_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 || byte == 0x7f;
  });
  MX_CHECK(text.size() <= longest && in_a_line, ProtocolError, "'", name, "': expected at most ", longest,
           " bytes without control characters");
  return text;
}

}  // namespace mx::launch
