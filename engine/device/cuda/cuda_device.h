// A GPU through the CUDA runtime. Only this folder includes it; others use Device.
//
// Errors. Every call's error goes through failed(): a sticky one (is_sticky()) marks the device lost. From
// then on its points count as failed and its streams run nothing. The process and other devices continue.
//
// Copies of host memory that is not page-locked are correct, but CUDA stages them and may block the caller
// for the time of the copy. cpu(0)'s memory is page-locked from the start of the first GPU on.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/device/cuda/cuda_error.h"
#include "engine/device/pool.h"

namespace mx {

/// Device memory in segments. Both calls may take milliseconds.
///
/// cudaFree() waits until all work of the device has ended. That work may itself wait for the host: for an
/// operation of the thread that calls cudaFree(), for example. So segments come from a memory pool of CUDA,
/// on a stream with no other work, where neither call waits for other streams. On devices without such pools,
/// segments come from cudaMalloc().
class CudaMemory final : public MemorySource {
 public:
  CudaMemory(int id, size_t limit_bytes);
  void* reserve(size_t bytes) override;
  void release(void* segment, size_t bytes) noexcept override;
  size_t limit_bytes() const noexcept override { return limit_; }
  bool release_may_wait() const noexcept override { return pool_ == nullptr; }
  /// Lets another device access the segments, also those that exist already. The hardware must support it.
  void share_with(int other) noexcept;

 private:
  const int id_;
  const size_t limit_;
  cudaMemPool_t pool_ = nullptr;
  cudaStream_t stream_ = nullptr;
};

class CudaDevice final : public Device {
 public:
  /// Creates the device's context. Throws DeviceError.
  explicit CudaDevice(int id);

  Context context() const override { return gpu(id_); }
  const DeviceProperties& properties() const override { return properties_; }
  void* allocate(size_t bytes, Stream* stream) override;
  void free(void* pointer, Stream* stream) noexcept override { pool_.free(pointer, stream); }
  void note_use(void* pointer, Stream& stream) override { pool_.note_use(pointer, stream); }
  void copy_async(void* target, Context target_context, const void* source, Context source_context,
                  size_t bytes, Stream& stream) override;
  std::unique_ptr<Stream> new_stream(StreamKind kind) override;
  std::unique_ptr<Event> new_event() override;
  std::unique_ptr<GraphBuilder> new_graph_builder() override;
  std::exception_ptr lost() const noexcept override;
  MemoryStats memory_stats() const override { return pool_.stats(); }
  void reset_peak_memory() override { pool_.reset_peak(); }
  size_t trim_memory() override { return pool_.trim(); }
  void set_memory_watermark(size_t bytes) override { pool_.set_watermark(bytes); }

  int id() const { return id_; }
  CudaMemory& memory() { return memory_; }

  /// The error as an exception; marks the device lost if it is sticky.
  std::exception_ptr failed(cudaError_t code, const char* call, const char* file, int line) noexcept;
  /// The same for an exception that a task threw: queries `stream` to find out if the context still works.
  void examine(cudaStream_t stream) noexcept;

  /// Events without timing, cached. take_event() throws CudaError.
  cudaEvent_t take_event();
  void give_event(cudaEvent_t event) noexcept;

  /// A word of page-locked memory, 0, on which a stream can be made to wait until the host writes 1. The 64
  /// bytes from there on belong to the caller.
  uint32_t* take_flag();
  void give_flag(uint32_t* flag) noexcept;

 private:
  void lose(std::exception_ptr error) noexcept;

  const int id_;
  const DeviceProperties properties_;
  CudaMemory memory_;
  Pool pool_;

  std::atomic<bool> is_lost_{false};
  mutable std::mutex mutex_;  // guards the members below
  std::exception_ptr lost_error_;
  std::vector<cudaEvent_t> events_;
  std::vector<uint32_t*> flags_;
};

}  // namespace mx
