#include "engine/base/process_mark.h"

#include <pthread.h>

#include <atomic>

namespace mx {

namespace {

constinit std::atomic<uint64_t> forks_before{0};

}  // namespace

uint64_t ProcessMark::forks() {
  [[maybe_unused]] static const int counted =
      ::pthread_atfork(nullptr, nullptr, [] { forks_before.fetch_add(1, std::memory_order_relaxed); });
  return forks_before.load(std::memory_order_relaxed);
}

}  // namespace mx
