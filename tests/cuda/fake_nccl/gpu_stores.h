// Stores over NCCL whose ranks are threads, each with a GPU of the stand-in and an engine of its own.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "kvstore/collective_op.h"
#include "kvstore/dist_allreduce.h"
#include "tests/comm/forwarding_communicator.h"
#include "tests/cuda/fake/fake_cuda.h"
#include "tests/cuda/fake_nccl/nccl_group.h"

namespace mx::test {

/// Waits until a condition holds, for at most 20 s. Returns whether it does.
template <class F>
bool becomes_true(const F& condition) {
  for (int i = 0; i < 20'000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return condition();
}

/// Holds kernels until open() is called. It opens by itself after 20 s, so that a test that fails ends.
class Gate {
 public:
  void open() { open_ = true; }
  bool is_open() const { return open_ || std::chrono::steady_clock::now() > last_; }

 private:
  std::atomic<bool> open_ = false;
  const std::chrono::steady_clock::time_point last_ =
      std::chrono::steady_clock::now() + std::chrono::seconds(20);
};

/// A kernel on a device that updates an array, which it adds `number` to when the gate opens.
inline void push_held_kernel(const NDArray& x, float number, const std::shared_ptr<const Gate>& gate) {
  const auto memory = std::make_shared<std::vector<NDArray>>(1, x);
  const int64_t count = x.numel();
  current_engine().push(
      [memory, number, gate, count](RunContext running) {
        float* const data = static_cast<float*>(detail::memory_of((*memory)[0], running.stream()));
        running.stream()->submit([=](KernelContext& context) {
          fake_cuda::launch(nullptr, dim3(1), dim3(32), 0, static_cast<cudaStream_t>(context.native_stream()),
                            [=] {
                              if (!gate->is_open()) return false;
                              for (int64_t i = 0; i < count; ++i) data[i] += number;
                              return true;
                            });
        });
      },
      {.updates = {x.var()}, .context = x.context(), .name = "held"});
}

/// What a store has asked of its communicator.
struct GpuCall {
  comm::Collective collective;
  size_t count;
  std::string what;
  bool on_device;  ///< all its buffers are memory of the GPU, and it comes with the work ahead of it
};

/// Passes the calls on to another communicator, and notes them.
class GpuNotes final : public comm::ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  void start(comm::Request request) override {
    bool on_device = request.work_ahead != nullptr;
    for (const void* buffer : {request.in, static_cast<const void*>(request.out)}) {
      cudaPointerAttributes attributes{};
      if (buffer != nullptr) (void)cudaPointerGetAttributes(&attributes, buffer);
      if (buffer != nullptr && attributes.type != cudaMemoryTypeDevice) on_device = false;
    }
    {
      const std::lock_guard lock(mutex_);
      calls_.push_back({request.collective, request.count, request.options.what, on_device});
    }
    request.done = [done = std::move(request.done), what = request.options.what,
                    ended = ended_](std::exception_ptr error) {
      if (error == nullptr) {
        const std::lock_guard lock(ended->mutex);
        ended->calls.push_back(what);
      }
      done(std::move(error));
    };
    ForwardingCommunicator::start(std::move(request));
  }
  /// Returns the calls of one kind since the last call of this function, and forgets all.
  std::vector<GpuCall> take(comm::Collective collective) {
    const std::lock_guard lock(mutex_);
    std::vector<GpuCall> found;
    for (GpuCall& call : calls_)
      if (call.collective == collective) found.push_back(std::move(call));
    calls_.clear();
    return found;
  }
  /// Returns how many calls, whose text contains `part`, have ended without an error.
  int64_t ended(const std::string& part) const {
    const std::lock_guard lock(ended_->mutex);
    return std::count_if(ended_->calls.begin(), ended_->calls.end(),
                         [&](const std::string& what) { return what.find(part) != std::string::npos; });
  }

 private:
  struct Ended {
    std::mutex mutex;
    std::vector<std::string> calls;
  };

  std::mutex mutex_;
  std::vector<GpuCall> calls_;
  const std::shared_ptr<Ended> ended_ = std::make_shared<Ended>();
};

/// One rank of a test.
struct GpuRank {
  KVStore& kv;
  Context device;
  GpuNotes& calls;
};

/// Calls body(rank) on one thread for each rank. The body may throw; the texts of errors that it does not
/// catch are returned, by rank.
inline std::vector<std::string> on_gpus(int ranks, const std::function<void(const GpuRank& rank)>& body,
                                        const KVStoreOptions& options = {}, EngineOptions engine_options = {},
                                        int first_device = 0) {
  std::vector<std::shared_ptr<comm::Communicator>> group = comm::make_nccl_group(ranks, first_device);
  std::vector<std::string> errors(group.size());
  std::vector<std::thread> threads;
  if (engine_options.threads == 0) engine_options.threads = 1;
  for (size_t r = 0; r < group.size(); ++r)
    threads.emplace_back([&, r] {
      Engine engine(engine_options);
      const EngineScope scope(engine);
      const auto notes = std::make_shared<GpuNotes>(std::move(group[r]));
      try {
        detail::DistAllreduce store("nccl", notes, detail::SumPlace::devices, options);
        body({store, gpu(first_device + static_cast<int>(r)), *notes});
      } catch (const std::exception& e) {
        errors[r] = e.what();
      }
      try {
        engine.wait_all();
      } catch (const std::exception&) {
        // reported by what the body waited for
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

}  // namespace mx::test
