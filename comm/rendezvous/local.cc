#include "comm/rendezvous/local.h"

#include <condition_variable>
#include <functional>
#include <mutex>
#include <utility>

#include "comm/net/bytes.h"
#include "comm/rendezvous/limits.h"
#include "comm/rendezvous/table.h"
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
    const bool added = table_.add(key, value);
    MX_CHECK(added || *table_.find(key) == value, InvalidState, "[rendezvous] expected key ", in_quotes(key),
             " to be written once, got another value for it");
    if (!added) return;
    watches_.post_matching(key, value);
    written_.notify_all();
  }

  void tell(const std::string& key, const std::string& value) override {
    check_entry(key, value);
    const std::lock_guard lock(mutex_);
    watches_.post_matching(key, value);
  }

  std::string get(const std::string& key, Deadline deadline) override {
    check_entry(key, {});
    std::unique_lock lock(mutex_);
    const bool found = written_.wait_until(lock, deadline.at(), [&] { return table_.find(key) != nullptr; });
    MX_CHECK(found, Timeout, "[rendezvous] expected an entry with key ", in_quotes(key),
             " until the deadline, got none");
    return *table_.find(key);
  }

  uint64_t watch(const std::string& prefix, Changed changed) override {
    const std::lock_guard lock(mutex_);
    const uint64_t id = ++last_watch_;
    watches_.add(id, prefix, std::move(changed));
    table_.each(prefix,
                [&](const std::string& key, const std::string& value) { watches_.post(id, key, value); });
    return id;
  }

  void unwatch(uint64_t id) override { watches_.remove(id); }

 private:
  std::mutex mutex_;
  std::condition_variable written_;
  Table table_;
  uint64_t last_watch_ = 0;
  Watches watches_;
};

}  // namespace

std::shared_ptr<Rendezvous> make_local_rendezvous() { return std::make_shared<LocalRendezvous>(); }

}  // namespace mx::comm
