// FlagLock: a lock of one byte, for objects of which there are many. Internal.
//
// Hold it for a few instructions only, while a reference is counted or a pointer is exchanged: a thread that
// does not get the lock yields and tries again. Destroy nothing under it: a destructor may run any code.
#pragma once

#include <atomic>
#include <thread>

namespace mx::detail {

class FlagLock {
 public:
  explicit FlagLock(std::atomic<bool>& locked) : locked_(locked) {
    while (locked_.exchange(true, std::memory_order_acquire)) [[unlikely]] std::this_thread::yield();
  }
  ~FlagLock() { locked_.store(false, std::memory_order_release); }
  FlagLock(const FlagLock&) = delete;
  FlagLock& operator=(const FlagLock&) = delete;

 private:
  std::atomic<bool>& locked_;
};

}  // namespace mx::detail
