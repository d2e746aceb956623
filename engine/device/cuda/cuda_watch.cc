#include "engine/device/cuda/cuda_watch.h"

#include <new>
#include <utility>

namespace mx {

WatchedWord::WatchedWord(CudaDevice& device, KernelErrors::Describe describe)
    : device_(device),
      describe_(std::move(describe)),
      word_(new (static_cast<void*>(device.take_flag())) KernelError) {}

WatchedWord::~WatchedWord() {
  if (running_ == 0) device_.give_flag(reinterpret_cast<uint32_t*>(word_));
}

void WatchedWord::launched() {
  const std::lock_guard lock(mutex_);
  ++running_;
}

std::exception_ptr WatchedWord::settle() noexcept {
  const std::lock_guard lock(mutex_);
  --running_;
  // Atomic, because another launch of the graph may change it at this time.
  const auto read = [](auto& number) { return std::atomic_ref(number).load(std::memory_order_acquire); };
  KernelError noted;
  noted.found = read(word_->found);
  if (noted.found == 0) return nullptr;
  noted.place = read(word_->place);
  noted.value = read(word_->value);
  noted.other = read(word_->other);
  // While other launches of the graph may have noted it too, the value stays.
  if (running_ == 0) std::atomic_ref(word_->found).store(0, std::memory_order_release);
  try {
    return describe_(noted);
  } catch (...) {
    return std::current_exception();
  }
}

std::exception_ptr WatchedLaunch::settle() noexcept {
  const std::lock_guard lock(mutex_);
  if (!settled_.load(std::memory_order_relaxed)) {
    error_ = word_->settle();
    settled_.store(true, std::memory_order_release);
  }
  return error_;
}

std::exception_ptr settle_all(const WatchedLaunches& launches) noexcept {
  std::exception_ptr first;
  for (const std::shared_ptr<WatchedLaunch>& launch : launches)
    if (std::exception_ptr error = launch->settle(); first == nullptr) first = std::move(error);
  return first;
}

}  // namespace mx
