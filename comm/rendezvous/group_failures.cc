#include "comm/rendezvous/group_failures.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <exception>
#include <string_view>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"

namespace mx::comm {
namespace {

constexpr size_t kLongestFailure = 4000;

}  // namespace

GroupFailures::GroupFailures(std::shared_ptr<Rendezvous> rendezvous, int64_t epoch, const std::string& group,
                             int rank)
    : rendezvous_(std::move(rendezvous)),
      group_(group),
      prefix_(epoch_key(epoch, "failed/" + group + "/")),
      transport_key_(epoch_key(epoch, "transport/" + group)),
      rank_(rank) {
  watch_ = rendezvous_->watch(prefix_, [this, size = prefix_.size(), own = std::to_string(rank)](
                                           std::string_view key, std::string_view value) {
    const std::string_view number = key.substr(size);
    if (number == own) return;
    const size_t line = value.find('\n');  // the host, then the reason
    const std::lock_guard lock(mutex_);
    int failed = -1;
    const auto [stop, error] = std::from_chars(number.data(), number.data() + number.size(), failed);
    if (failure_ || line == std::string_view::npos || error != std::errc()) return;
    failed_rank_ = failed;
    failure_ =
        mx::detail::concat("rank ", std::string(number), " on host ", std::string(value.substr(0, line)),
                           ", which cannot join: ", std::string(value.substr(line + 1)));
  });
}

GroupFailures::~GroupFailures() {
  rendezvous_->unwatch(watch_);
  if (transport_watch_ != 0) rendezvous_->unwatch(transport_watch_);
}

void GroupFailures::compare(const std::string& host, const std::string& transport,
                            const std::string& named_in) {
  if (rank_ == 0) {
    compared_ = true;
    return rendezvous_->put(transport_key_, transport + "\n" + host + "\n" + named_in);
  }
  const std::string own =
      mx::detail::concat("'", transport, "' on rank ", rank_, " on host ", host, " (", named_in, ")");
  transport_watch_ = rendezvous_->watch(
      transport_key_, [this, transport, own](std::string_view key, std::string_view value) {
        const size_t line = value.find('\n');  // the transport, then the host, then where it was named
        if (key != transport_key_ || line == std::string_view::npos) return;
        const std::string_view rest = value.substr(line + 1);
        const size_t end = std::min(rest.find('\n'), rest.size());
        const std::lock_guard lock(mutex_);
        compared_ = true;
        changed_.notify_all();
        if (value.substr(0, line) == transport) return;
        difference_ = mx::detail::concat(own, " and '", std::string(value.substr(0, line)),
                                         "' on rank 0 on host ", std::string(rest.substr(0, end)), " (",
                                         std::string(rest.substr(std::min(end + 1, rest.size()))), ")");
      });
}

bool GroupFailures::wait_for_first(int64_t timeout_ms) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::milliseconds(timeout_ms), [this] { return compared_; });
}

void GroupFailures::tell(const std::string& host, const std::string& reason) noexcept try {
  rendezvous_->put(prefix_ + std::to_string(rank_), host + "\n" + reason.substr(0, kLongestFailure));
} catch (const std::exception&) {
  // The others learn of the end of this process, or wait for their deadline.
}

std::optional<int> GroupFailures::failed_rank() {
  const std::lock_guard lock(mutex_);
  return failure_ ? std::optional(failed_rank_) : std::nullopt;
}

void GroupFailures::check() {
  const std::lock_guard lock(mutex_);
  MX_CHECK(!failure_, PeerLost, "[world] expected all ranks to join group '", group_, "', got ", *failure_);
  MX_CHECK(!difference_, InvalidArgument, "[world] expected the same transport on all ranks for group '",
           group_, "', got ", *difference_);
}

}  // namespace mx::comm
