#include "mxrun/config_file.h"

#include <istream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "mxrun/hosts/text.h"

namespace mx::launch {
namespace {

constexpr size_t kLongestConfigLine = 64 << 10;

std::string unquoted(std::string_view value) {
  const bool quotes = value.size() >= 2 && value.front() == '"' && value.back() == '"';
  return std::string(quotes ? value.substr(1, value.size() - 2) : value);
}

}  // namespace

std::string place_of(const ConfigLine& line) {
  return mx::detail::concat("line ", line.number, ", ", text::quoted(line.text), ": ");
}

std::vector<ConfigLine> read_config(std::istream& input) {
  std::vector<ConfigLine> lines;
  std::string raw;
  for (int number = 1; std::getline(input, raw); ++number) {
    ConfigLine line;
    line.number = number;
    line.text = std::string(text::trimmed(raw));
    if (line.text.empty() || line.text[0] == '#' || line.text[0] == ';') continue;
    MX_CHECK(line.text.size() <= kLongestConfigLine, InvalidArgument, place_of(line), "expected at most ",
             kLongestConfigLine, " bytes in a line, got ", line.text.size());
    const size_t equals = line.text.find('=');
    line.has_value = equals != std::string::npos;
    line.name = std::string(text::trimmed(std::string_view(line.text).substr(0, equals)));
    if (line.has_value) line.value = unquoted(text::trimmed(std::string_view(line.text).substr(equals + 1)));
    MX_CHECK(!line.name.empty() && line.name[0] != '[', InvalidArgument, place_of(line),
             "expected NAME=VALUE, without sections");
    MX_CHECK(line.name[0] != '-', InvalidArgument, place_of(line),
             "expected the name of an option without dashes");
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace mx::launch
