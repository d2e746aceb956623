// The calls that a thread may make while a stream captures, by the mode of the capture. Source: CUDA Runtime
// API, cudaStreamBeginCapture and cudaThreadExchangeStreamCaptureMode; CUDA Programming Guide, "Prohibited
// and Unhandled Operations". The documentation names the potentially unsafe calls only by example, so the
// table is what a GPU did.
#include <string>
#include <vector>

#include "tests/cuda/facts/facts.h"

namespace mx::facts {
namespace {

struct Call {
  std::string name;
  std::function<cudaError_t()> run;
  bool unsafe;  // refused in the modes global and thread-local
};

// Everything that the calls need, made before a capture begins.
struct Room {
  StreamHandle other;
  EventHandle recorded, spare;
  Words word;
  uint32_t* memory = nullptr;
  uint32_t host[4] = {};
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  std::vector<void*> device, pinned;
  std::vector<cudaStream_t> streams;
  std::vector<cudaEvent_t> events;

  Room() {
    EXPECT_SUCCESS(cudaMalloc(reinterpret_cast<void**>(&memory), 1024));
    launch_write(memory, 1, other);
    EXPECT_SUCCESS(cudaEventRecord(recorded, other));
    EXPECT_SUCCESS(cudaStreamSynchronize(other));
    EXPECT_SUCCESS(cudaGraphCreate(&graph, 0));
    cudaGraphNode_t node = nullptr;
    EXPECT_SUCCESS(cudaGraphAddEmptyNode(&node, graph, nullptr, 0));
    EXPECT_SUCCESS(cudaGraphInstantiateWithFlags(&exec, graph, 0));
  }
  ~Room() {
    (void)cudaGraphExecDestroy(exec);
    (void)cudaGraphDestroy(graph);
    (void)cudaFree(memory);
    for (void* p : device) (void)cudaFree(p);
    for (void* p : pinned) (void)cudaFreeHost(p);
    for (cudaStream_t s : streams) (void)cudaStreamDestroy(s);
    for (cudaEvent_t e : events) (void)cudaEventDestroy(e);
    (void)cudaGetLastError();
  }
};

std::vector<Call> calls(Room& room) {
  return {
      {"cudaMalloc",
       [&] {
         void* p = nullptr;
         const cudaError_t code = cudaMalloc(&p, 1024);
         if (code == cudaSuccess) room.device.push_back(p);
         return code;
       },
       true},
      {"cudaFree",
       [&] {
         const cudaError_t code = cudaFree(room.memory);
         if (code == cudaSuccess) room.memory = nullptr;
         return code;
       },
       true},
      {"cudaHostAlloc",
       [&] {
         void* p = nullptr;
         const cudaError_t code = cudaHostAlloc(&p, 1024, cudaHostAllocPortable);
         if (code == cudaSuccess) room.pinned.push_back(p);
         return code;
       },
       true},
      {"cudaEventCreateWithFlags",
       [&] {
         cudaEvent_t event = nullptr;
         const cudaError_t code = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
         if (code == cudaSuccess) room.events.push_back(event);
         return code;
       },
       false},
      {"cudaStreamCreateWithFlags",
       [&] {
         cudaStream_t stream = nullptr;
         const cudaError_t code = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
         if (code == cudaSuccess) room.streams.push_back(stream);
         return code;
       },
       false},
      {"cudaEventQuery of another stream's event", [&] { return cudaEventQuery(room.recorded); }, true},
      {"cudaEventSynchronize of another stream's event", [&] { return cudaEventSynchronize(room.recorded); },
       true},
      {"cudaStreamQuery of another stream", [&] { return cudaStreamQuery(room.other); }, true},
      {"cudaStreamSynchronize of another stream", [&] { return cudaStreamSynchronize(room.other); }, true},
      {"cudaMemcpy", [&] { return cudaMemcpy(room.memory, room.host, 4, cudaMemcpyHostToDevice); }, false},
      {"cudaEventRecord on another stream", [&] { return cudaEventRecord(room.spare, room.other); }, false},
      {"a kernel on another stream",
       [&] {
         launch_write(room.word.get(), 1, room.other);
         return cudaGetLastError();
       },
       false},
      {"cudaMemcpyAsync on another stream",
       [&] { return cudaMemcpyAsync(room.word.get(), room.word.get(), 4, cudaMemcpyHostToHost, room.other); },
       false},
      {"cudaGraphLaunch on another stream", [&] { return cudaGraphLaunch(room.exec, room.other); }, false},
      {"cudaGraphInstantiate",
       [&] {
         cudaGraphExec_t exec = nullptr;
         const cudaError_t code = cudaGraphInstantiateWithFlags(&exec, room.graph, 0);
         if (code == cudaSuccess) (void)cudaGraphExecDestroy(exec);
         return code;
       },
       true},
      {"cudaGetDeviceProperties",
       [] {
         cudaDeviceProp properties{};
         return cudaGetDeviceProperties(&properties, 0);
       },
       false},
      {"cudaMemGetInfo",
       [] {
         size_t free = 0, total = 0;
         return cudaMemGetInfo(&free, &total);
       },
       false},
      {"cudaPointerGetAttributes",
       [&] {
         cudaPointerAttributes attributes{};
         return cudaPointerGetAttributes(&attributes, room.word.get());
       },
       false},
      {"cudaFuncGetAttributes",
       [] {
         cudaFuncAttributes attributes{};
         return cudaFuncGetAttributes(&attributes, write_function());
       },
       false},
      {"cudaSetDevice", [] { return cudaSetDevice(0); }, false},
  };
}

class CaptureModes : public Facts {
 protected:
  // Runs one call while a stream captures; says what it returned and how the capture ended.
  void try_call(size_t index, cudaStreamCaptureMode mode, bool on_another_thread, cudaError_t expected,
                cudaError_t expected_end) {
    Room room;
    Call call = calls(room)[index];
    SCOPED_TRACE(call.name);
    StreamHandle stream;
    ASSERT_EQ(cudaSuccess, cudaStreamBeginCapture(stream, mode));
    cudaError_t code = cudaSuccess;
    if (on_another_thread) {
      std::thread([&] { code = call.run(); }).join();
    } else {
      code = call.run();
    }
    (void)cudaGetLastError();
    cudaGraph_t graph = nullptr;
    const cudaError_t end = cudaStreamEndCapture(stream, &graph);
    (void)cudaGetLastError();
    if (graph != nullptr) (void)cudaGraphDestroy(graph);
    EXPECT_STREQ(cudaGetErrorName(expected), cudaGetErrorName(code)) << "is what the call returned";
    EXPECT_STREQ(cudaGetErrorName(expected_end), cudaGetErrorName(end)) << "is how the capture ended";
  }
  size_t count() {
    Room room;
    return calls(room).size();
  }
  bool is_unsafe(size_t index) {
    Room room;
    return calls(room)[index].unsafe;
  }
};

TEST_F(CaptureModes, ThreadLocalRefusesUnsafeCallsOfTheCapturingThreadAndInvalidatesItsCapture) {
  for (size_t i = 0; i < count(); ++i) {
    const bool unsafe = is_unsafe(i);
    try_call(i, cudaStreamCaptureModeThreadLocal, false,
             unsafe ? cudaErrorStreamCaptureUnsupported : cudaSuccess,
             unsafe ? cudaErrorStreamCaptureInvalidated : cudaSuccess);
  }
}

TEST_F(CaptureModes, ThreadLocalDoesNotRestrictOtherThreads) {
  for (size_t i = 0; i < count(); ++i)
    try_call(i, cudaStreamCaptureModeThreadLocal, true, cudaSuccess, cudaSuccess);
}

TEST_F(CaptureModes, GlobalRefusesUnsafeCallsOfEveryThread) {
  for (size_t i = 0; i < count(); ++i) {
    const bool unsafe = is_unsafe(i);
    try_call(i, cudaStreamCaptureModeGlobal, true, unsafe ? cudaErrorStreamCaptureUnsupported : cudaSuccess,
             unsafe ? cudaErrorStreamCaptureInvalidated : cudaSuccess);
  }
}

TEST_F(CaptureModes, RelaxedRefusesNone) {
  for (size_t i = 0; i < count(); ++i)
    try_call(i, cudaStreamCaptureModeRelaxed, false, cudaSuccess, cudaSuccess);
}

// So a thread can make unsafe calls in the middle of its thread-local capture.
TEST_F(CaptureModes, AThreadThatExchangesItsModeForRelaxedMayMakeUnsafeCalls) {
  for (size_t i = 0; i < count(); ++i) {
    Room room;
    Call call = calls(room)[i];
    SCOPED_TRACE(call.name);
    StreamHandle stream;
    ASSERT_EQ(cudaSuccess, cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    EXPECT_SUCCESS(cudaThreadExchangeStreamCaptureMode(&mode));
    EXPECT_SUCCESS(call.run());
    EXPECT_SUCCESS(cudaThreadExchangeStreamCaptureMode(&mode));
    cudaGraph_t graph = nullptr;
    EXPECT_SUCCESS(cudaStreamEndCapture(stream, &graph));
    (void)cudaGraphDestroy(graph);
  }
}

}  // namespace
}  // namespace mx::facts
