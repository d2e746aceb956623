// Stores over NCCL whose ranks are threads, each with a GPU of the stand-in and an engine of its own.
#pragma once

#include <cuda_runtime_api.h>

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
#include "kvstore/dist_allreduce.h"
#include "tests/comm/forwarding_communicator.h"
#include "tests/cuda/fake_nccl/nccl_group.h"

namespace mx::test {

/// Waits until a condition holds, for at most 20 s. Returns whether it does.
template <class F>
bool becomes_true(const F& condition) {
  for (int i = 0; i < 20'000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return condition();
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

 private:
  std::mutex mutex_;
  std::vector<GpuCall> calls_;
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
