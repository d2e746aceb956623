#include "mxrun/launchers/rendezvous_channel.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"

namespace mx::launch {
namespace {

constexpr char kMore = '+', kLast = '.';
constexpr size_t kLongestPiece = comm::Rendezvous::kLongestValue - 1;
// More than any message needs. A foreign entry must not make an agent wait for pieces without end.
constexpr size_t kLongestMessage = size_t{64} << 20;

}  // namespace

/// What has arrived. Shared with the watch and the closers, which may run while the channel ends.
struct RendezvousChannel::Inbox {
  Inbox() : event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    MX_CHECK(event >= 0, CommunicationError, "[mxrun] a channel's eventfd: ", std::strerror(errno));
  }
  ~Inbox() { close(event); }

  void wake() const {
    const uint64_t one = 1;
    // It fails only if the counter is full, and then the descriptor is readable anyway.
    if (write(event, &one, sizeof one) < 0) return;
  }

  void arrived(std::string_view number, std::string_view value) {
    uint64_t sequence = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), sequence);
    if (error != std::errc() || end != number.data() + number.size()) return;
    const std::lock_guard lock(mutex);
    pieces.emplace(sequence, value);
    other_watches = true;
    wake();
  }

  /// True if the other side reads what is told: its watch is older than the first message that it sent.
  bool other_is_watching() {
    const std::lock_guard lock(mutex);
    return other_watches;
  }

  void close_other_side() {
    const std::lock_guard lock(mutex);
    other_is_gone = true;
    wake();
  }

  /// Takes the next message if all of its pieces are there.
  bool take(std::string* message) {
    const std::lock_guard lock(mutex);
    for (auto it = pieces.find(next); it != pieces.end(); it = pieces.find(next)) {
      const std::string piece = std::move(it->second);
      pieces.erase(it);
      ++next;
      if (piece.empty() || partial.size() + piece.size() > kLongestMessage) {
        other_is_gone = true;  // not one of our messages
        return false;
      }
      partial.append(piece, 1);
      if (piece[0] == kMore) continue;
      *message = std::exchange(partial, {});
      return true;
    }
    // The descriptor stays readable when the other side is gone, so that a loop notices it.
    uint64_t count = 0;
    if (!other_is_gone) {
      [[maybe_unused]] const ssize_t got = read(event, &count, sizeof count);  // fails if it was not readable
    }
    return false;
  }

  bool is_closed() {
    const std::lock_guard lock(mutex);
    return other_is_gone && !pieces.contains(next);
  }

  const int event;
  std::mutex mutex;
  std::map<uint64_t, std::string> pieces;  // by number, as the order of arrival is not promised
  uint64_t next = 0;
  std::string partial;
  bool other_is_gone = false, other_watches = false;
};

ChannelPrefixes channel_prefixes(int node) {
  const std::string start = "agent/" + std::to_string(node);
  return {start + "/to/", start + "/from/"};
}

RendezvousChannel::RendezvousChannel(std::shared_ptr<comm::Rendezvous> table, std::string writes,
                                     const std::string& reads)
    : table_(std::move(table)), writes_(std::move(writes)), inbox_(std::make_shared<Inbox>()) {
  watch_ = table_->watch(
      reads, [inbox = inbox_, start = reads.size()](std::string_view key, std::string_view value) {
        inbox->arrived(key.substr(start), value);
      });
}

RendezvousChannel::~RendezvousChannel() {
  try {
    table_->unwatch(watch_);
  } catch (const Error&) {  // the connection is lost, and with it the watch
  }
}

void RendezvousChannel::send(const std::string& message) {
  try {
    size_t at = 0;
    do {
      const size_t bytes = std::min(kLongestPiece, message.size() - at);
      std::string piece(1, at + bytes < message.size() ? kMore : kLast);
      piece.append(message, at, bytes);
      const std::string key = writes_ + std::to_string(sent_);
      // The table keeps entries to its end, and a job of days has a great many pings.
      if (inbox_->other_is_watching())
        table_->tell(key, piece);
      else
        table_->put(key, piece);
      ++sent_;
      at += bytes;
    } while (at < message.size());
  } catch (const CommunicationError&) {
    inbox_->close_other_side();
  } catch (const Timeout&) {
    inbox_->close_other_side();
  }
}

int RendezvousChannel::readable_fd() const { return inbox_->event; }
bool RendezvousChannel::receive(std::string* message) { return inbox_->take(message); }
bool RendezvousChannel::closed() const { return inbox_->is_closed(); }

std::function<void()> RendezvousChannel::closer() const {
  return [inbox = inbox_] { inbox->close_other_side(); };
}

}  // namespace mx::launch
