#include "comm/rendezvous/departures.h"

#include <charconv>
#include <string_view>
#include <utility>

#include "engine/base/error.h"

namespace mx::comm {
namespace {

std::string ended_prefix(int64_t epoch, const std::string& role) { return epoch_key(epoch, "ended/" + role); }

}  // namespace

std::string ended_key(int64_t epoch, const std::string& role, int rank) {
  return ended_prefix(epoch, role) + std::to_string(rank);
}

Departures::Departures(std::shared_ptr<Rendezvous> rendezvous, int64_t epoch, const std::string& group,
                       int rank)
    : rendezvous_(std::move(rendezvous)), joins_(epoch_key(epoch, "joins/" + group + "/")) {
  rendezvous_->put(joins_key(rank), "yes");
  const std::string prefix = ended_prefix(epoch, "worker");
  watch_ =
      rendezvous_->watch(prefix, [this, size = prefix.size()](std::string_view key, std::string_view host) {
        EndedWorker worker;
        const std::string_view number = key.substr(size);
        const auto [stop, error] = std::from_chars(number.data(), number.data() + number.size(), worker.rank);
        if (error != std::errc() || stop != number.data() + number.size())
          return;  // not an entry of a worker
        worker.host = host;
        const std::lock_guard lock(mutex_);
        ended_.push_back(std::move(worker));
      });
}

Departures::~Departures() { rendezvous_->unwatch(watch_); }

std::string Departures::joins_key(int rank) const { return joins_ + std::to_string(rank); }

std::optional<EndedWorker> Departures::look() {
  std::vector<EndedWorker> ended;
  {
    const std::lock_guard lock(mutex_);
    if (departed_) return departed_;
    ended = std::exchange(ended_, {});
  }
  for (EndedWorker& worker : ended) {
    try {
      rendezvous_->put(joins_key(worker.rank), "no");
    } catch (const InvalidState&) {
      continue;  // It had joined before it ended.
    }
    const std::lock_guard lock(mutex_);
    departed_ = std::move(worker);
    return departed_;
  }
  return std::nullopt;
}

}  // namespace mx::comm
