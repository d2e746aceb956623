#include "comm/rendezvous/local.h"

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "comm/net/bytes.h"
#include "comm/rendezvous/limits.h"
#include "comm/rendezvous/watches.h"
#include "engine/base/check.h"
#include "engine/base/error.h"

namespace mx::comm {
namespace {

class LocalRendezvous final : public Rendezvous {
 public:
  void put(const std::string& key, const std::string& value) override {
    check_entry(key, value);
    const std::lock_guard lock(mutex_);
    const auto [entry, added] = table_.emplace(key, value);
    MX_CHECK(added || entry->second == value, InvalidState, "[rendezvous] expected key ", in_quotes(key),
             " to be written once, got another value for it");
    if (!added) return;
    watches_.post_matching(key, value);
    written_.notify_all();
  }

  std::string get(const std::string& key, Deadline deadline) override {
    check_entry(key, {});
    std::unique_lock lock(mutex_);
    const bool found = written_.wait_until(lock, deadline.at(), [&] { return table_.contains(key); });
    MX_CHECK(found, Timeout, "[rendezvous] expected an entry with key ", in_quotes(key),
             " until the deadline, got none");
    return table_.at(key);
  }

  uint64_t watch(const std::string& prefix, Changed changed) override {
    const std::lock_guard lock(mutex_);
    const uint64_t id = ++last_watch_;
    watches_.add(id, prefix, std::move(changed));
    for (auto entry = table_.lower_bound(prefix); entry != table_.end() && entry->first.starts_with(prefix);
         ++entry)
      watches_.post(id, entry->first, entry->second);
    return id;
  }

  void unwatch(uint64_t id) override { watches_.remove(id); }

 private:
  std::mutex mutex_;
  std::condition_variable written_;
  std::map<std::string, std::string> table_;
  uint64_t last_watch_ = 0;
  Watches watches_;
};

}  // namespace

std::shared_ptr<Rendezvous> make_local_rendezvous() { return std::make_shared<LocalRendezvous>(); }

}  // namespace mx::comm
