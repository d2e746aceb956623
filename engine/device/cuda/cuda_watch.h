// Words in which kernels note bad values (kernel_error.h), and the errors that they become. Private to
// engine/device/cuda/.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/device/cuda/cuda_device.h"
#include "engine/device/kernel_error.h"

namespace mx {

/// A word of page-locked memory. It belongs to one task, or to a node of a graph, which may be launched many
/// times. Safe from any thread.
class WatchedWord {
 public:
  /// Throws CudaError.
  WatchedWord(CudaDevice& device, KernelErrors::Describe describe);
  /// A word whose kernels may still run is never used again.
  ~WatchedWord();
  WatchedWord(const WatchedWord&) = delete;

  KernelError* get() const { return word_; }
  void launched();
  /// Precondition: the kernels of a launch have ended. Returns the error that they have noted, or null.
  std::exception_ptr settle() noexcept;

 private:
  CudaDevice& device_;
  const KernelErrors::Describe describe_;
  KernelError* const word_;
  std::mutex mutex_;
  int running_ = 0;  // launches that are not settled
};

/// One launch of the kernels that have a word. Safe from any thread, except set_number().
class WatchedLaunch {
 public:
  explicit WatchedLaunch(std::shared_ptr<WatchedWord> word) : word_(std::move(word)) { word_->launched(); }

  /// The number of a point after the launch (CudaProgress).
  void set_number(uint64_t number) { number_.store(number, std::memory_order_release); }
  uint64_t number() const { return number_.load(std::memory_order_acquire); }
  /// Precondition: the kernels have ended. Returns their error, or null; always the same.
  std::exception_ptr settle() noexcept;
  bool settled() const { return settled_.load(std::memory_order_acquire); }

 private:
  const std::shared_ptr<WatchedWord> word_;
  std::atomic<uint64_t> number_{UINT64_MAX};
  std::atomic<bool> settled_{false};
  std::mutex mutex_;
  std::exception_ptr error_;
};
using WatchedLaunches = std::vector<std::shared_ptr<WatchedLaunch>>;

/// Precondition: the kernels of all launches have ended. Returns the first error, or null.
std::exception_ptr settle_all(const WatchedLaunches& launches) noexcept;

}  // namespace mx
