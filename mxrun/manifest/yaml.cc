#include "mxrun/manifest/yaml.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
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

std::string scalar(const Json& value) {
  if (value.is_string() && is_plain(value.get_ref<const std::string&>()))
    return value.get_ref<const std::string&>();
  try {
    return value.dump();
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
