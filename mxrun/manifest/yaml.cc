#include "mxrun/manifest/yaml.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

#include "engine/base/error.h"

namespace mx::launch {
namespace {

using Json = nlohmann::ordered_json;

/// True if YAML 1.1 and 1.2 both read the text as this string without quotes.
bool is_plain(const std::string& text) {
  constexpr std::array<std::string_view, 10> kOther = {"true", "false", "yes", "no", "on",
                                                       "off",  "null",  "y",   "n",  "nan"};
  if (text.empty() || !std::isalpha(static_cast<unsigned char>(text[0]))) return false;
  const bool has_plain_letters = std::all_of(text.begin(), text.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-' || c == '/';
  });
  if (!has_plain_letters) return false;
  std::string lower = text;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return std::find(kOther.begin(), kOther.end(), lower) == kOther.end();
}

/// Escapes the characters that JSON allows in a string as they are, but YAML does not: U+007F to U+009F,
/// U+2028, U+2029, U+FEFF, U+FFFE and U+FFFF. Others stay as they are: JSON's escapes of characters beyond
/// U+FFFF are pairs, which YAML does not know.
std::string escaped_for_yaml(const std::string& json) {
  std::string out;
  for (size_t at = 0; at < json.size();) {
    const std::string_view rest = std::string_view(json).substr(at);
    const auto byte = [rest](size_t i) { return static_cast<unsigned char>(rest[i]); };
    size_t size = 0;
    unsigned code = 0;
    if (byte(0) == 0x7f) {
      size = 1;
      code = 0x7f;
    } else if (rest.size() >= 2 && byte(0) == 0xc2 && byte(1) <= 0x9f) {
      size = 2;
      code = byte(1);
    } else if (rest.starts_with("\u2028") || rest.starts_with("\u2029") || rest.starts_with("\ufeff") ||
               rest.starts_with("\ufffe") || rest.starts_with("\uffff")) {
      size = 3;
      code = (byte(0) & 0xfu) << 12 | (byte(1) & 0x3fu) << 6 | (byte(2) & 0x3fu);
    }
    if (size == 0) {
      out += json[at++];
      continue;
    }
    char escape[8];
    std::snprintf(escape, sizeof escape, "\\u%04x", code & 0xffffu);
    out += escape;
    at += size;
  }
  return out;
}

std::string scalar(const Json& value) {
  if (value.is_string() && is_plain(value.get_ref<const std::string&>()))
    return value.get_ref<const std::string&>();
  try {
    return escaped_for_yaml(value.dump());
  } catch (const Json::exception&) {
    throw InvalidArgument("[mxrun] expected text in UTF-8 for a manifest, got other bytes");
  }
}

bool is_block(const Json& value) { return value.is_structured() && !value.empty(); }

/// Appends a map or a list. The cursor is where its first line begins, after `indent` characters.
void append_block(const Json& value, size_t indent, std::string& out) {
  bool first = true;
  const auto begin_line = [&] {
    if (!first) out.append(indent, ' ');
    first = false;
  };
  if (value.is_array()) {
    for (const Json& item : value) {
      begin_line();
      out += "- ";
      if (is_block(item))
        append_block(item, indent + 2, out);
      else
        out.append(scalar(item)).push_back('\n');
    }
    return;
  }
  for (const auto& [key, item] : value.items()) {
    begin_line();
    out.append(scalar(Json(key))).push_back(':');
    if (is_block(item)) {
      out.append(1, '\n').append(indent + 2, ' ');
      append_block(item, indent + 2, out);
    } else {
      out.append(1, ' ').append(scalar(item)).push_back('\n');
    }
  }
}

}  // namespace

std::string to_yaml(const nlohmann::ordered_json& value) {
  std::string out;
  if (is_block(value))
    append_block(value, 0, out);
  else
    out = scalar(value) + "\n";
  return out;
}

std::string to_yaml(const std::vector<nlohmann::ordered_json>& documents) {
  std::string out;
  for (const nlohmann::ordered_json& document : documents) {
    if (!out.empty()) out += "---\n";
    out += to_yaml(document);
  }
  return out;
}

}  // namespace mx::launch
