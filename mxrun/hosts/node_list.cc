#include "mxrun/hosts/node_list.h"

#include <algorithm>
#include <optional>
#include <string>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "mxrun/hosts/hosts.h"
#include "mxrun/hosts/text.h"

namespace mx::launch {
namespace {

const std::string kNodeListPlace = "[mxrun] list of nodes: ";

/// Appends the numbers of "3" or "08-11" to `numbers`.
void append_range(std::string_view range, std::string_view list, std::vector<std::string>& numbers) {
  const size_t dash = range.find('-');
  const std::string_view low = range.substr(0, dash);
  const std::string_view high = dash == std::string_view::npos ? low : range.substr(dash + 1);
  const std::optional<int> first = text::parse_number(low), last = text::parse_number(high);
  MX_CHECK(first && last && *first <= *last, InvalidArgument, kNodeListPlace,
           "expected numbers or ranges as '1-3,07' in brackets, got ", text::quoted(range), " in ",
           text::quoted(list));
  MX_CHECK(*last - *first < kMostHosts - static_cast<int>(numbers.size()), InvalidArgument, kNodeListPlace,
           "expected at most ", kMostHosts, " nodes, got more in ", text::quoted(list));
  for (int i = *first; i <= *last; ++i) {
    std::string digits = std::to_string(i);
    if (digits.size() < low.size()) digits.insert(0, low.size() - digits.size(), '0');
    numbers.push_back(std::move(digits));
  }
}

/// Returns the numbers of the inside of a bracket.
std::vector<std::string> parse_bracket(std::string_view inside, std::string_view list) {
  std::vector<std::string> numbers;
  for (size_t at = 0; at <= inside.size();) {
    const size_t end = std::min(inside.find(',', at), inside.size());
    append_range(inside.substr(at, end - at), list, numbers);
    at = end + 1;
  }
  return numbers;
}

/// Returns the names of one item: text with any number of brackets.
std::vector<std::string> expand(std::string_view item, std::string_view list) {
  std::vector<std::string> names = {""};
  for (size_t at = 0; at < item.size();) {
    const size_t open = std::min(item.find('[', at), item.size());
    for (std::string& name : names) name += item.substr(at, open - at);
    // A name is short and there are few of them, so that the work is bounded by the length of the list.
    MX_CHECK(names[0].size() <= 253, InvalidArgument, kNodeListPlace, "expected names of at most 253 ",
             "characters, got ", text::quoted(item));
    if (open == item.size()) break;
    const size_t close = item.find(']', open);
    MX_CHECK(close != std::string_view::npos, InvalidArgument, kNodeListPlace, "expected ']' after ",
             text::quoted(item.substr(open)));
    const std::vector<std::string> numbers = parse_bracket(item.substr(open + 1, close - open - 1), list);
    MX_CHECK(numbers.size() * names.size() <= kMostHosts, InvalidArgument, kNodeListPlace,
             "expected at most ", kMostHosts, " nodes, got more in ", text::quoted(list));
    std::vector<std::string> longer;
    longer.reserve(numbers.size() * names.size());
    for (const std::string& name : names)
      for (const std::string& number : numbers) longer.push_back(name + number);
    names = std::move(longer);
    at = close + 1;
  }
  for (const std::string& name : names) check_host_name(name, kNodeListPlace);
  return names;
}

/// Returns the end of the item that begins at `at`: the next comma outside brackets, or the end of the list.
size_t end_of_item(std::string_view list, size_t at) {
  bool inside = false;
  for (; at < list.size(); ++at) {
    if (list[at] == '[') inside = true;
    if (list[at] == ']') inside = false;
    if (list[at] == ',' && !inside) break;
  }
  return at;
}

}  // namespace

std::vector<std::string> parse_node_list(std::string_view text) {
  std::vector<std::string> nodes;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = end_of_item(text, at);
    const std::string_view item = text.substr(at, end - at);
    MX_CHECK(!item.empty(), InvalidArgument, kNodeListPlace, "expected names as 'n[1-3],x', got ",
             text::quoted(text));
    std::vector<std::string> names = expand(item, text);
    MX_CHECK(nodes.size() + names.size() <= kMostHosts, InvalidArgument, kNodeListPlace, "expected at most ",
             kMostHosts, " nodes, got more in ", text::quoted(text));
    nodes.insert(nodes.end(), names.begin(), names.end());
    at = end + 1;
  }
  return nodes;
}

std::vector<int> parse_repeated_counts(std::string_view text) {
  std::vector<int> counts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    std::string_view item = text.substr(at, end - at);
    std::optional<int> times = 1;
    const size_t open = item.find("(x");
    if (open != std::string_view::npos && item.ends_with(')')) {
      times = text::parse_number(item.substr(open + 2, item.size() - open - 3));
      item = item.substr(0, open);
    }
    const std::optional<int> count = text::parse_number(item);
    MX_CHECK(count && times, InvalidArgument, "[mxrun] counts of nodes: expected '4(x2),3', got ",
             text::quoted(text));
    MX_CHECK(*times <= kMostHosts - static_cast<int>(counts.size()), InvalidArgument,
             "[mxrun] counts of nodes: expected at most ", kMostHosts, " nodes, got more in ",
             text::quoted(text));
    counts.insert(counts.end(), static_cast<size_t>(*times), *count);
    at = end + 1;
  }
  return counts;
}

}  // namespace mx::launch
