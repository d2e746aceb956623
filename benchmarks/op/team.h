// Threads that run one function together, repeatedly, and spin in between: the minimal cost of splitting a
// loop. For limits, which must not depend on the thread pool of a library.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "benchmarks/support/clock.h"

namespace mx::bench {

class Team {
 public:
  /// `threads` includes the caller of run().
  explicit Team(int threads) {
    for (int i = 1; i < threads; ++i) members_.emplace_back([this, i] { work(i); });
  }
  ~Team() {
    function_ = nullptr;
    round_.fetch_add(1, std::memory_order_release);
    for (std::thread& t : members_) t.join();
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  /// Calls function(0) in this thread and function(1), ... in the others; returns when all calls have ended.
  void run(const std::function<void(int)>& function) {
    function_ = &function;
    ended_.store(0, std::memory_order_relaxed);
    round_.fetch_add(1, std::memory_order_release);
    function(0);
    while (ended_.load(std::memory_order_acquire) != members_.size()) relax();
  }

 private:
  void work(int index) {
    for (uint64_t seen = 0;;) {
      while (round_.load(std::memory_order_acquire) == seen) relax();
      ++seen;
      if (function_ == nullptr) return;
      (*function_)(index);
      ended_.fetch_add(1, std::memory_order_release);
    }
  }

  const std::function<void(int)>* function_ = nullptr;
  std::atomic<uint64_t> round_{0};
  std::atomic<size_t> ended_{0};
  std::vector<std::thread> members_;
};

}  // namespace mx::bench
