// The watches of one rendezvous, and the thread that calls them, so that a slow callback delays neither the
// one who writes an entry nor a heartbeat. Internal.
//
// Callbacks, and with them the objects that they have captured, are destroyed while no mutex is held: the
// destructor of such an object may call this class, too.
//
// Thread-safety: any thread may call any function.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "comm/rendezvous.h"

namespace mx::comm {

class Watches {
 public:
  Watches() = default;
  /// Callbacks that have not started are dropped.
  ~Watches();

  /// Starts the thread, so that no later call has to. Throws OutOfMemory if the system cannot.
  void start();
  void add(uint64_t id, std::string prefix, Rendezvous::Changed changed);
  /// When it returns, the callback is not running, will not be called again, and is destroyed. Within a
  /// callback it does not wait.
  void remove(uint64_t id);
  /// Queues a call of one watch.
  void post(uint64_t id, std::string key, std::string value);
  /// Queues calls of all watches whose prefix matches.
  void post_matching(const std::string& key, const std::string& value);
  /// Queues another function for the thread.
  void post(std::function<void()> function);
  /// Calls nothing any more, and waits for the callback that is running. Not within a callback.
  void stop();

 private:
  struct Watch {
    std::string prefix;
    std::shared_ptr<const Rendezvous::Changed> changed;
  };
  struct Call {
    uint64_t id;
    std::function<void()> function;
  };
  // With mutex_ held. Leaves the function with the caller after stop().
  void queue(uint64_t id, std::function<void()>&& function);
  void start_locked();
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, Watch> watches_;
  std::deque<Call> calls_;
  uint64_t running_ = 0;  // id of the watch whose callback runs
  bool stopped_ = false;
  std::thread thread_;      // started by start() or the first call; stop() takes it away
  std::thread::id caller_;  // of the thread; set by it
};

}  // namespace mx::comm
