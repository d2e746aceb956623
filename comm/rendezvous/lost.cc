#include "comm/rendezvous/lost.h"

#include <charconv>

#include "comm/net/bytes.h"
#include "comm/rendezvous.h"
#include "engine/base/check.h"
#include "engine/base/error.h"

namespace mx::comm {
namespace {

constexpr std::string_view kLate = "\nlate";
constexpr std::string_view kHost = "\nhost=";

template <class T>
bool parse_whole(std::string_view text, T& out) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && stop == text.data() + text.size() && !text.empty();
}

/// "worker3"
bool parse_name(std::string_view text, ProcessName& out) {
  const size_t digit = text.find_first_of("0123456789");
  if (digit == std::string_view::npos || digit == 0 || !parse_whole(text.substr(digit), out.rank))
    return false;
  out.role = text.substr(0, digit);
  return true;
}

}  // namespace

std::string lost_prefix(int64_t epoch) { return epoch_key(epoch, "lost/"); }

std::string lost_key(const LostProcess& lost) {
  return lost_prefix(lost.epoch) + lost.role + std::to_string(lost.rank);
}

std::string lost_value(const LostProcess& lost) {
  return lost.host + "\n" + std::to_string(lost.step) + "\n" + lost.reason;
}

LostProcess parse_lost(std::string_view key, std::string_view value) {
  LostProcess lost;
  const auto require = [&](bool good) {
    MX_CHECK(good, ProtocolError, "[rendezvous] expected the entry of a lost process, got key ",
             in_quotes(key), " with value ", in_quotes(value));
  };
  const size_t slash = key.find("/lost/");
  ProcessName name;
  require(slash != std::string_view::npos && parse_whole(key.substr(0, slash), lost.epoch) &&
          parse_name(key.substr(slash + 6), name));
  lost.role = name.role;
  lost.rank = name.rank;
  const size_t first = value.find('\n');
  const size_t second = first == std::string_view::npos ? first : value.find('\n', first + 1);
  require(second != std::string_view::npos &&
          parse_whole(value.substr(first + 1, second - first - 1), lost.step));
  lost.host = value.substr(0, first);
  lost.reason = value.substr(second + 1);
  return lost;
}

std::string to_string(const LostProcess& lost) {
  return mx::detail::concat(lost.role == "worker" ? "rank" : lost.role, " ", lost.rank, " on host ",
                            lost.host, lost.step >= 0 ? " at step " + std::to_string(lost.step) : "", ": ",
                            lost.reason);
}

std::string consequence_prefix(int64_t epoch) { return epoch_key(epoch, "because/"); }

Consequence parse_consequence(std::string_view key, std::string_view value) {
  constexpr std::string_view kMiddle = "/because/";
  Consequence found;
  const size_t at = key.find(kMiddle);
  std::string_view cause = value;
  if (const size_t host = cause.find(kHost); host != std::string_view::npos) {
    found.host = cause.substr(host + kHost.size());
    cause = cause.substr(0, host);
  }
  found.late = cause.ends_with(kLate);
  if (found.late) cause.remove_suffix(kLate.size());
  const bool good = at != std::string_view::npos && parse_whole(key.substr(0, at), found.epoch) &&
                    parse_name(key.substr(at + kMiddle.size()), found.process) &&
                    parse_name(cause, found.cause);
  MX_CHECK(good, ProtocolError, "[rendezvous] expected the cause of a failure, got key ", in_quotes(key),
           " with value ", in_quotes(value));
  return found;
}

void report_consequence(Rendezvous& rendezvous, const Consequence& consequence) noexcept {
  const auto text = [](const ProcessName& name) { return name.role + std::to_string(name.rank); };
  try {
    rendezvous.put(consequence_prefix(consequence.epoch) + text(consequence.process),
                   text(consequence.cause) + std::string(consequence.late ? kLate : "") +
                       (consequence.host.empty() ? "" : std::string(kHost) + consequence.host));
  } catch (const std::exception&) {
    // An earlier cause is known, or the rendezvous is lost.
  }
}

}  // namespace mx::comm
