#include "mxrun/hosts/hosts.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <unordered_map>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "mxrun/hosts/text.h"

namespace mx::launch {
namespace {

/// Collects hosts and joins repeated ones.
class HostCollector {
 public:
  /// `slots` is null if no number was written.
  void add(std::string_view name, std::optional<int> slots, const std::string& where) {
    check_host_name(name, where);
    MX_CHECK(!slots || (*slots >= 1 && *slots <= kMostSlots), InvalidArgument, where, "expected 1 to ",
             kMostSlots, " slots, got ", *slots, " for host ", text::quoted(name));
    const auto [found, is_new] = index_.try_emplace(std::string(name), hosts_.size());
    if (is_new) {
      MX_CHECK(hosts_.size() < kMostHosts, InvalidArgument, where, "expected at most ", kMostHosts, " hosts");
      hosts_.push_back({std::string(name), slots.value_or(1)});
      has_number_.push_back(slots.has_value());
      return;
    }
    Host& host = hosts_[found->second];
    MX_CHECK(!slots && !has_number_[found->second], InvalidArgument, where, "host ", text::quoted(name),
             " is listed twice: give its slots once, or list it without numbers");
    MX_CHECK(host.slots < kMostSlots, InvalidArgument, where, "host ", text::quoted(name), " has more than ",
             kMostSlots, " slots");
    ++host.slots;
  }

  std::vector<Host> take() { return std::move(hosts_); }

 private:
  std::vector<Host> hosts_;
  std::vector<bool> has_number_;
  std::unordered_map<std::string, size_t> index_;  // name -> place in hosts_
};

struct NameAndSlots {
  std::string_view name;
  std::optional<int> slots;
};

std::optional<int> parse_slots(std::string_view digits, const std::string& where) {
  const std::optional<int> slots = text::parse_number(digits);
  MX_CHECK(slots, InvalidArgument, where, "expected a number of slots, got ", text::quoted(digits));
  return slots;
}

/// Parses "name", "name:4", "[::1]" or "[::1]:4".
NameAndSlots parse_host(std::string_view word, const std::string& where) {
  if (word.starts_with('[')) {
    const size_t end = word.find(']');
    MX_CHECK(end != std::string_view::npos, InvalidArgument, where,
             "expected ']' after an IPv6 address, got ", text::quoted(word));
    const std::string_view name = word.substr(1, end - 1), rest = word.substr(end + 1);
    MX_CHECK(name.find(':') != std::string_view::npos, InvalidArgument, where,
             "expected an IPv6 address in the brackets, got ", text::quoted(word));
    if (rest.empty()) return {name, std::nullopt};
    MX_CHECK(rest.front() == ':', InvalidArgument, where, "expected '[address]:slots', got ",
             text::quoted(word));
    return {name, parse_slots(rest.substr(1), where)};
  }
  const size_t colon = word.find(':');
  if (colon == std::string_view::npos) return {word, std::nullopt};
  MX_CHECK(word.find(':', colon + 1) == std::string_view::npos, InvalidArgument, where,
           "expected 'host:slots', got ", text::quoted(word), "; write an IPv6 address in brackets");
  return {word.substr(0, colon), parse_slots(word.substr(colon + 1), where)};
}

/// Parses the words behind the name: "slots=4 max_slots=8".
std::optional<int> parse_host_settings(const std::vector<std::string_view>& words, std::optional<int> slots,
                                       const std::string& where) {
  std::optional<int> most;
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string_view word = words[i];
    const size_t equal = word.find('=');
    const std::string_view key = word.substr(0, equal);
    const bool is_slots = key == "slots", is_most = key == "max_slots" || key == "max-slots";
    MX_CHECK(equal != std::string_view::npos && (is_slots || is_most), InvalidArgument, where,
             "expected 'slots=N', got ", text::quoted(word));
    std::optional<int>& target = is_slots ? slots : most;
    MX_CHECK(!target, InvalidArgument, where, "the number of slots is given twice, the second time as ",
             text::quoted(word));
    target = parse_slots(word.substr(equal + 1), where);
  }
  MX_CHECK(!most || *most >= slots.value_or(1), InvalidArgument, where, "expected max_slots of at least ",
           slots.value_or(1), ", got ", *most);
  return slots;
}

}  // namespace

void check_host_name(std::string_view name, const std::string& where) {
  MX_CHECK(!name.empty(), InvalidArgument, where, "expected the name of a host, got nothing");
  MX_CHECK(name.size() <= 253, InvalidArgument, where,
           "expected a host name of at most 253 characters, got one of ", name.size(), ": ",
           text::quoted(name));
  MX_CHECK(name.front() != '-', InvalidArgument, where, "expected the name of a host, got ",
           text::quoted(name));
  const bool is_address = name.find(':') != std::string_view::npos;
  for (char c : name) {
    const bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    const bool fits = word || c == '.' || (is_address ? c == ':' || c == '%' : c == '-' || c == '_');
    MX_CHECK(fits, InvalidArgument, where,
             "expected letters, digits, '.', '_' and '-' in the name of a host, ", "got ",
             text::quoted(name));
  }
}

std::vector<Host> parse_host_list(std::string_view text) {
  const std::string where = "[mxrun] -H: ";
  HostCollector hosts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string_view item = text::trimmed(text.substr(at, end - at));
    MX_CHECK(!item.empty(), InvalidArgument, where, "expected hosts as 'a:4,b:4', got ", text::quoted(text));
    const NameAndSlots host = parse_host(item, where);
    hosts.add(host.name, host.slots, where);
    at = end + 1;
  }
  return hosts.take();
}

std::vector<Host> parse_hostfile(std::string_view text, const std::string& source) {
  HostCollector hosts;
  int number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    const std::vector<std::string_view> words = text::words(line.substr(0, line.find('#')));
    if (words.empty()) continue;
    const std::string where = mx::detail::concat("[mxrun] hostfile ", source, ", line ", number, ", ",
                                                 text::quoted(text::trimmed(line)), ": ");
    const NameAndSlots host = parse_host(words[0], where);
    hosts.add(host.name, parse_host_settings(words, host.slots, where), where);
  }
  std::vector<Host> found = hosts.take();
  MX_CHECK(!found.empty(), InvalidArgument, "[mxrun] hostfile ", source,
           ": expected a host a line, got none");
  return found;
}

std::vector<Host> read_hostfile(const std::string& path) {
  constexpr size_t kLongest = 4 << 20;
  std::ifstream file(path, std::ios::binary);
  MX_CHECK(file.is_open(), InvalidArgument, "[mxrun] hostfile ", path, ": ", std::strerror(errno));
  std::string content(kLongest + 1, '\0');
  file.read(content.data(), static_cast<std::streamsize>(content.size()));
  MX_CHECK(!file.bad(), InvalidArgument, "[mxrun] hostfile ", path, ": cannot be read");
  content.resize(static_cast<size_t>(file.gcount()));
  MX_CHECK(content.size() <= kLongest, InvalidArgument, "[mxrun] hostfile ", path,
           ": expected at most 4 MiB, got more");
  return parse_hostfile(content, path);
}

std::string to_string(const std::vector<Host>& hosts) {
  std::string out;
  for (const Host& host : hosts) {
    if (!out.empty()) out += ',';
    const bool is_address = host.name.find(':') != std::string::npos;
    out += mx::detail::concat(is_address ? "[" : "", host.name, is_address ? "]:" : ":", host.slots);
  }
  return out;
}

}  // namespace mx::launch
