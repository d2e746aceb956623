#include "comm/rendezvous/watches.h"

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/threads.h"

namespace mx::comm {

Watches::~Watches() { stop(); }

void Watches::start() {
  const std::lock_guard lock(mutex_);
  start_locked();
}

void Watches::start_locked() {
  if (!thread_.joinable()) thread_ = start_thread("rendezvous", [this] { run(); });
}

void Watches::add(uint64_t id, std::string prefix, Rendezvous::Changed changed) {
  const std::lock_guard lock(mutex_);
  watches_[id] = {std::move(prefix), std::make_shared<const Rendezvous::Changed>(std::move(changed))};
}

void Watches::remove(uint64_t id) {
  decltype(watches_)::node_type watch;  // destroyed after the lock has been released, like `calls`
  std::deque<Call> calls;
  std::unique_lock lock(mutex_);
  watch = watches_.extract(id);
  for (Call& call : calls_)
    if (call.id == id) calls.push_back(std::move(call));
  std::erase_if(calls_, [id](const Call& call) { return call.id == id; });
  if (std::this_thread::get_id() == caller_) return;
  changed_.wait(lock, [&] { return running_ != id; });
}

void Watches::post(uint64_t id, std::string key, std::string value) {
  const std::lock_guard lock(mutex_);
  const auto found = watches_.find(id);
  if (found == watches_.end()) return;
  queue(id, [changed = found->second.changed, key = std::move(key), value = std::move(value)] {
    (*changed)(key, value);
  });
}

void Watches::post_matching(const std::string& key, const std::string& value) {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, watch] : watches_)
    if (key.starts_with(watch.prefix))
      queue(id, [changed = watch.changed, key, value] { (*changed)(key, value); });
}

void Watches::post(std::function<void()> function) {
  const std::lock_guard lock(mutex_);
  queue(0, std::move(function));
}

void Watches::queue(uint64_t id, std::function<void()>&& function) {
  if (stopped_) return;
  calls_.push_back({id, std::move(function)});
  start_locked();
  changed_.notify_all();
}

void Watches::stop() {
  std::thread thread;
  std::deque<Call> calls;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    calls.swap(calls_);
    thread = std::move(thread_);
    changed_.notify_all();
  }
  if (thread.joinable()) thread.join();
}

void Watches::run() {
  std::unique_lock lock(mutex_);
  caller_ = std::this_thread::get_id();
  for (;;) {
    changed_.wait(lock, [&] { return stopped_ || !calls_.empty(); });
    if (stopped_) return;
    Call call = std::move(calls_.front());
    calls_.pop_front();
    running_ = call.id;
    lock.unlock();
    try {
      call.function();
    } catch (...) {
      log(LogLevel::error, "[rendezvous] a callback of a watch threw: " + current_exception_text());
    }
    call.function = nullptr;  // what it holds is released before remove() returns
    lock.lock();
    running_ = 0;
    changed_.notify_all();
  }
}

}  // namespace mx::comm
