#include "comm/rendezvous/lost.h"

#include <charconv>

#include "comm/net/bytes.h"
#include "comm/rendezvous.h"
#include "engine/base/check.h"
#include "engine/base/error.h"

namespace mx::comm {
namespace {

template <class T>
bool parse_whole(std::string_view text, T& out) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && stop == text.data() + text.size() && !text.empty();
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
  require(slash != std::string_view::npos && parse_whole(key.substr(0, slash), lost.epoch));
  const std::string_view name = key.substr(slash + 6);
  const size_t digit = name.find_first_of("0123456789");
  require(digit != std::string_view::npos && digit > 0 && parse_whole(name.substr(digit), lost.rank));
  lost.role = name.substr(0, digit);
  const size_t first = value.find('\n');
  const size_t second = first == std::string_view::npos ? first : value.find('\n', first + 1);
  require(second != std::string_view::npos &&
          parse_whole(value.substr(first + 1, second - first - 1), lost.step));
  lost.host = value.substr(0, first);
  lost.reason = value.substr(second + 1);
  return lost;
}

std::string to_string(const LostProcess& lost) {
  return mx::detail::concat(lost.role, " rank ", lost.rank, " on host ", lost.host, " at step ", lost.step,
                            ": ", lost.reason);
}

}  // namespace mx::comm
