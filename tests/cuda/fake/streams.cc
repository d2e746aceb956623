// Streams, events, and launches.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

#include "tests/cuda/fake/state.h"

namespace mx::fake_cuda {
namespace {

constexpr unsigned kMostThreads = 1024;
constexpr size_t kMostShared = size_t{227} << 10;

bool loads_lazily() {
  static const char* const loading = std::getenv("CUDA_MODULE_LOADING");
  return loading == nullptr || std::string(loading) != "EAGER";
}

CUstream_st* make_stream(int device, unsigned flags, int priority) {
  State& s = state();
  auto stream = std::make_shared<CUstream_st>();
  stream->device = device;
  stream->blocking = (flags & cudaStreamNonBlocking) == 0;
  stream->priority = priority;
  s.handles.push_back(stream);
  s.devices[static_cast<size_t>(device)].streams.push_back(stream.get());
  return stream.get();
}

void destroy_stream(CUstream_st& stream) {
  stream.alive = false;
  auto& all = state().devices[static_cast<size_t>(stream.device)].streams;
  if (stream.queue.empty()) all.erase(std::remove(all.begin(), all.end(), &stream), all.end());
}

cudaError_t launch_checked(Lock& lock, const void* function, dim3 grid, dim3 block, size_t shared_bytes,
                           cudaStream_t handle, Step step) {
  cudaError_t code = cudaSuccess;
  const cudaStream_t stream = find(handle, code);
  if (stream == nullptr) return code;
  const size_t threads = size_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > kMostThreads || grid.x == 0 || grid.y == 0 || grid.z == 0 ||
      shared_bytes > kMostShared) {
    if (stream->capture != nullptr) invalidate(*stream->capture);
    return cudaErrorInvalidValue;
  }
  if (stream->device != current_device()) return cudaErrorInvalidResourceHandle;
  State& s = state();
  if (function != nullptr && stream->capture == nullptr && s.loaded.insert(function).second && loads_lazily())
    if (code = wait_idle(lock, stream->device); code != cudaSuccess) return code;
  return append(*stream, {NodeKind::kernel, std::move(step), stream->priority});
}

/// An event that exists and whose device works.
cudaError_t check_event(const CUevent_st& event) {
  touch_current();
  if (!event.alive) return cudaErrorInvalidResourceHandle;
  return state().devices[static_cast<size_t>(event.device)].lost;
}

cudaError_t check_observable(const CUevent_st& event) {
  if (const cudaError_t code = check_event(event); code != cudaSuccess) return code;
  if (event.capture != nullptr) {
    if (!event.capture->active) return cudaErrorInvalidValue;
    invalidate(*event.capture);
    return cudaErrorCapturedEvent;
  }
  return check_unsafe();
}

/// Makes a stream that captures, or that joins a capture, wait for a captured event.
cudaError_t wait_in_capture(CUstream_st& stream, const CUevent_st& event) {
  if (event.capture == nullptr) {  // recorded outside
    invalidate(*stream.capture);
    return cudaErrorStreamCaptureIsolation;
  }
  if (!event.capture->active) return cudaErrorInvalidValue;
  if (stream.capture != nullptr && stream.capture != event.capture) {
    invalidate(*stream.capture);
    invalidate(*event.capture);
    return cudaErrorStreamCaptureMerge;
  }
  if (!event.capture->valid) return cudaErrorStreamCaptureInvalidated;
  stream.capture = event.capture;
  stream.capture->streams.insert(&stream);
  for (CUgraphNode_st* tip : event.tips)
    if (std::find(stream.tips.begin(), stream.tips.end(), tip) == stream.tips.end())
      stream.tips.push_back(tip);
  return cudaSuccess;
}

}  // namespace

ThreadState::~ThreadState() {
  const Lock lock(state().mutex);
  for (const auto& entry : streams) destroy_stream(*entry.second);
}

cudaStream_t find(cudaStream_t stream, cudaError_t& code) {
  State& s = state();
  touch_current();
  if (stream == nullptr || stream == cudaStreamLegacy) {
    stream = current(code).legacy;
  } else if (stream == cudaStreamPerThread) {
    cudaStream_t& own = this_thread().streams[current_device()];
    (void)current(code);
    if (own == nullptr) own = make_stream(current_device(), cudaStreamDefault, 0);
    stream = own;
  }
  code = stream->alive ? s.devices[static_cast<size_t>(stream->device)].lost : cudaErrorInvalidResourceHandle;
  return code == cudaSuccess ? stream : nullptr;
}

cudaError_t append(CUstream_st& stream, Work work) {
  if (stream.capture != nullptr) {
    if (!stream.capture->valid) return cudaErrorStreamCaptureInvalidated;
    stream.tips = {capture_node(stream, std::move(work))};
    return cudaSuccess;
  }
  if (stream.legacy) {
    for (const cudaStream_t other : state().devices[static_cast<size_t>(stream.device)].streams) {
      if (!other->blocking || other->capture == nullptr) continue;
      invalidate(*other->capture);
      return cudaErrorStreamCaptureImplicit;
    }
  }
  append_item(stream, item_of(std::move(work.step)));
  return cudaSuccess;
}

int device_of(cudaStream_t handle) {
  const Lock lock(state().mutex);
  cudaError_t code = cudaSuccess;
  const cudaStream_t stream = find(handle, code);
  return stream == nullptr ? -1 : stream->device;
}

void launch(const void* function, dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
            Step step) {
  (void)call([&](Lock& lock) {
    return launch_checked(lock, function, grid, block, shared_bytes, stream, std::move(step));
  });
}

}  // namespace mx::fake_cuda

using namespace mx::fake_cuda;

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return call([&](Lock&) {
    cudaError_t code = cudaSuccess;
    (void)current(code);
    if (code == cudaSuccess) *stream = make_stream(current_device(), flags, priority);
    return code;
  });
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return call([&](Lock&) {
    cudaError_t code = cudaSuccess;
    const cudaStream_t stream = find(handle, code);
    if (stream == nullptr) return code;
    if (stream->legacy) return cudaErrorInvalidResourceHandle;
    if (stream->capture != nullptr) invalidate(*stream->capture);
    destroy_stream(*stream);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return call([&](Lock& lock) {
    cudaError_t code = cudaSuccess;
    const cudaStream_t stream = find(handle, code);
    if (stream == nullptr) return code;
    if (stream->capture != nullptr) {
      invalidate(*stream->capture);
      return cudaErrorStreamCaptureUnsupported;
    }
    if (code = check_unsafe(); code != cudaSuccess) return code;
    return wait_stream(lock, *stream);
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return call([&](Lock&) {
    cudaError_t code = cudaSuccess;
    const cudaStream_t stream = find(handle, code);
    if (stream == nullptr) return code;
    if (stream->capture != nullptr) {
      invalidate(*stream->capture);
      return cudaErrorStreamCaptureUnsupported;
    }
    if (code = check_unsafe(); code != cudaSuccess) return code;
    return stream->queue.empty() ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
  return call([&](Lock&) {
    cudaError_t code = cudaSuccess;
    const cudaStream_t stream = find(handle, code);
    if (stream == nullptr) return code;
    if (code = check_event(*event); code != cudaSuccess) return code;
    if (stream->capture != nullptr && !stream->capture->valid) return cudaErrorStreamCaptureInvalidated;
    if (event->capture != nullptr) return wait_in_capture(*stream, *event);
    if (event->latest == nullptr) return cudaSuccess;
    if (stream->capture != nullptr) return wait_in_capture(*stream, *event);
    auto item = item_of(nothing);
    item->after.push_back(event->latest);
    append_item(*stream, std::move(item));
    return cudaSuccess;
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  return call([&](Lock&) {
    cudaError_t code = cudaSuccess;
    const cudaStream_t stream = find(handle, code);
    if (stream == nullptr) return code;
    return append(*stream, {NodeKind::host, [=] {
                              function(data);
                              return true;
                            }});
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return call([&](Lock&) {
    cudaError_t code = cudaSuccess;
    (void)current(code);
    if (code != cudaSuccess) return code;
    auto made = std::make_shared<CUevent_st>();
    made->device = current_device();
    state().handles.push_back(made);
    *event = made.get();
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return call([&](Lock&) {
    if (const cudaError_t code = check_event(*event); code != cudaSuccess) return code;
    event->alive = false;
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  return call([&](Lock&) {
    cudaError_t code = cudaSuccess;
    const cudaStream_t stream = find(handle, code);
    if (stream == nullptr) return code;
    if (code = check_event(*event); code != cudaSuccess) return code;
    if (event->device != stream->device) return cudaErrorInvalidResourceHandle;
    if (stream->capture != nullptr) {
      if (!stream->capture->valid) return cudaErrorStreamCaptureInvalidated;
      event->capture = stream->capture;
      event->tips = stream->tips;
      return cudaSuccess;
    }
    if (code = append(*stream, {NodeKind::empty, nothing}); code != cudaSuccess) return code;
    event->capture = nullptr;
    event->latest = stream->last;
    return cudaSuccess;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return call([&](Lock&) {
    if (const cudaError_t code = check_observable(*event); code != cudaSuccess) return code;
    return event->latest == nullptr || event->latest->done ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return call([&](Lock& lock) {
    if (const cudaError_t code = check_observable(*event); code != cudaSuccess) return code;
    return wait_done(lock, event->device, event->latest);
  });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  return call([&](Lock&) {
    cudaError_t code = cudaSuccess;
    (void)current(code);
    *attributes = {};
    attributes->maxThreadsPerBlock = static_cast<int>(kMostThreads);
    state().loaded.insert(function);
    return code;
  });
}
