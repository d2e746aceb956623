// The work that a capture may contain, and the errors with which it ends. Source: CUDA Programming Guide,
// "Creating a Graph Using Stream Capture"; CUDA Runtime API, error codes 900 to 908.
#include <algorithm>
#include <vector>

#include "tests/cuda/facts/facts.h"

namespace mx::facts {
namespace {

class Capture : public Facts {
 protected:
  static void begin(cudaStream_t stream) {
    ASSERT_EQ(cudaSuccess, cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  }
  // Ends a capture and drops its graph.
  static cudaError_t end(cudaStream_t stream) {
    cudaGraph_t graph = nullptr;
    const cudaError_t code = cudaStreamEndCapture(stream, &graph);
    if (graph != nullptr) (void)cudaGraphDestroy(graph);
    (void)cudaGetLastError();
    return code;
  }
  // Captures `work` and runs the graph once.
  static void capture_and_run(const std::function<void(cudaStream_t)>& work) {
    StreamHandle stream;
    begin(stream);
    work(stream);
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaSuccess, cudaStreamEndCapture(stream, &graph));
    cudaGraphExec_t exec = nullptr;
    ASSERT_EQ(cudaSuccess, cudaGraphInstantiateWithFlags(&exec, graph, 0));
    EXPECT_SUCCESS(cudaGraphLaunch(exec, stream));
    EXPECT_SUCCESS(cudaStreamSynchronize(stream));
    EXPECT_SUCCESS(cudaGraphExecDestroy(exec));
    EXPECT_SUCCESS(cudaGraphDestroy(graph));
  }
};

TEST_F(Capture, ACapturingStreamCannotBeSynchronizedOrQueried) {
  StreamHandle stream;
  begin(stream);
  EXPECT_CODE(cudaErrorStreamCaptureUnsupported, cudaStreamSynchronize(stream));
  EXPECT_CODE(cudaErrorStreamCaptureInvalidated, end(stream));
  begin(stream);
  EXPECT_CODE(cudaErrorStreamCaptureUnsupported, cudaStreamQuery(stream));
  EXPECT_CODE(cudaErrorStreamCaptureInvalidated, end(stream));
}

TEST_F(Capture, ACapturedEventCannotBeQueriedOrWaitedFor) {
  StreamHandle stream;
  EventHandle event;
  begin(stream);
  EXPECT_SUCCESS(cudaEventRecord(event, stream));
  EXPECT_CODE(cudaErrorCapturedEvent, cudaEventQuery(event));
  EXPECT_CODE(cudaErrorStreamCaptureInvalidated, end(stream));
  begin(stream);
  EXPECT_SUCCESS(cudaEventRecord(event, stream));
  EXPECT_CODE(cudaErrorCapturedEvent, cudaEventSynchronize(event));
  EXPECT_CODE(cudaErrorStreamCaptureInvalidated, end(stream));
}

// The documentation says so for the time of the capture; afterwards the code is another one.
TEST_F(Capture, AnEventThatWasLastRecordedInACaptureCannotBeQueriedLater) {
  StreamHandle stream;
  EventHandle event;
  begin(stream);
  EXPECT_SUCCESS(cudaEventRecord(event, stream));
  EXPECT_SUCCESS(end(stream));
  EXPECT_CODE(cudaErrorInvalidValue, cudaEventQuery(event));
  EXPECT_SUCCESS(cudaEventRecord(event, stream));
  EXPECT_SUCCESS(cudaStreamSynchronize(stream));
  EXPECT_SUCCESS(cudaEventQuery(event));
}

TEST_F(Capture, OnlyTheThreadThatBeganMayEndAThreadLocalCapture) {
  StreamHandle stream;
  begin(stream);
  cudaError_t code = cudaSuccess;
  std::thread([&] { code = end(stream); }).join();
  EXPECT_CODE(cudaErrorStreamCaptureWrongThread, code);
  (void)end(stream);
}

TEST_F(Capture, AForkedStreamMustBeJoined) {
  StreamHandle origin, fork;
  EventHandle event;
  Words word;
  begin(origin);
  EXPECT_SUCCESS(cudaEventRecord(event, origin));
  EXPECT_SUCCESS(cudaStreamWaitEvent(fork, event, 0));
  launch_write(word.get(), 1, fork);
  EXPECT_CODE(cudaErrorStreamCaptureUnjoined, end(origin));
  cudaStreamCaptureStatus status{};
  EXPECT_SUCCESS(cudaStreamIsCapturing(fork, &status));
  EXPECT_EQ(cudaStreamCaptureStatusNone, status);
}

TEST_F(Capture, AJoinedForkIsPartOfTheGraph) {
  Words words(2);
  StreamHandle fork;
  EventHandle forked, joined;
  capture_and_run([&](cudaStream_t origin) {
    EXPECT_SUCCESS(cudaEventRecord(forked, origin));
    EXPECT_SUCCESS(cudaStreamWaitEvent(fork, forked, 0));
    launch_write(words.get(), 5, fork);
    EXPECT_SUCCESS(cudaEventRecord(joined, fork));
    EXPECT_SUCCESS(cudaStreamWaitEvent(origin, joined, 0));
    launch_write(words.get() + 1, 6, origin);
  });
  EXPECT_EQ(5u, words[0]);
  EXPECT_EQ(6u, words[1]);
}

TEST_F(Capture, ACapturingStreamCannotWaitForAnEventThatWasRecordedOutside) {
  StreamHandle stream, other;
  EventHandle event;
  Words word;
  launch_write(word.get(), 1, other);
  EXPECT_SUCCESS(cudaEventRecord(event, other));
  begin(stream);
  EXPECT_CODE(cudaErrorStreamCaptureIsolation, cudaStreamWaitEvent(stream, event, 0));
  EXPECT_CODE(cudaErrorStreamCaptureInvalidated, end(stream));
}

TEST_F(Capture, TwoCapturesCannotBeMerged) {
  StreamHandle a, b;
  EventHandle event;
  begin(a);
  begin(b);
  EXPECT_SUCCESS(cudaEventRecord(event, a));
  EXPECT_CODE(cudaErrorStreamCaptureMerge, cudaStreamWaitEvent(b, event, 0));
  EXPECT_CODE(cudaErrorStreamCaptureInvalidated, end(b));
  EXPECT_CODE(cudaErrorStreamCaptureInvalidated, end(a));
}

TEST_F(Capture, TheLegacyStreamCannotWaitForABlockingStreamThatCaptures) {
  StreamHandle blocking(cudaStreamDefault);
  Words word;
  begin(blocking);
  launch_write(word.get(), 1, cudaStreamLegacy);
  EXPECT_CODE(cudaErrorStreamCaptureImplicit, cudaGetLastError());
  EXPECT_CODE(cudaErrorStreamCaptureInvalidated, end(blocking));
}

TEST_F(Capture, TheLegacyStreamMayBeUsedBesideANonBlockingStreamThatCaptures) {
  StreamHandle stream;
  Words word;
  begin(stream);
  launch_write(word.get(), 1, cudaStreamLegacy);
  EXPECT_SUCCESS(cudaGetLastError());
  EXPECT_SUCCESS(end(stream));
  EXPECT_SUCCESS(cudaDeviceSynchronize());
  EXPECT_EQ(1u, word[0]);
}

TEST_F(Capture, TheLegacyStreamCannotCapture) {
  EXPECT_CODE(cudaErrorStreamCaptureUnsupported,
              cudaStreamBeginCapture(cudaStreamLegacy, cudaStreamCaptureModeThreadLocal));
}

TEST_F(Capture, BeginAndEndMustAlternate) {
  StreamHandle stream;
  cudaGraph_t graph = nullptr;
  EXPECT_CODE(cudaErrorIllegalState, cudaStreamEndCapture(stream, &graph));
  begin(stream);
  EXPECT_CODE(cudaErrorIllegalState, cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  (void)end(stream);
}

TEST_F(Capture, NothingRunsBeforeTheGraphIsLaunched) {
  StreamHandle stream;
  Words word;
  begin(stream);
  launch_write(word.get(), 1, stream);
  EXPECT_SUCCESS(end(stream));
  EXPECT_SUCCESS(cudaDeviceSynchronize());
  EXPECT_EQ(0u, word[0]);
}

TEST_F(Capture, AnEmptyCaptureIsAGraphWithoutNodes) {
  StreamHandle stream;
  begin(stream);
  cudaGraph_t graph = nullptr;
  EXPECT_SUCCESS(cudaStreamEndCapture(stream, &graph));
  size_t nodes = 1;
  EXPECT_SUCCESS(cudaGraphGetNodes(graph, nullptr, &nodes));
  EXPECT_EQ(0u, nodes);
  EXPECT_SUCCESS(cudaGraphDestroy(graph));
}

// Lazy loading must not need a call that is forbidden during a capture.
TEST_F(Capture, AKernelMayBeLaunchedForTheFirstTimeInACapture) {
  Words word;
  capture_and_run([&](cudaStream_t stream) {
    launch_first_in_capture(word.get(), stream);
    EXPECT_SUCCESS(cudaGetLastError());
  });
  EXPECT_EQ(1u, word[0]);
}

// Such a copy reads and writes the host's memory when the graph runs.
TEST_F(Capture, CopiesOfPageableMemoryMayBeCaptured) {
  std::vector<uint32_t> source(100000, 1), target(100000, 0);
  const size_t bytes = source.size() * sizeof(uint32_t);
  uint32_t* device = nullptr;
  ASSERT_EQ(cudaSuccess, cudaMalloc(reinterpret_cast<void**>(&device), bytes));
  StreamHandle stream;
  begin(stream);
  EXPECT_SUCCESS(cudaMemcpyAsync(device, source.data(), bytes, cudaMemcpyHostToDevice, stream));
  EXPECT_SUCCESS(cudaMemcpyAsync(target.data(), device, bytes, cudaMemcpyDeviceToHost, stream));
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaSuccess, cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(cudaSuccess, cudaGraphInstantiateWithFlags(&exec, graph, 0));
  for (uint32_t value : {7u, 8u}) {
    std::fill(source.begin(), source.end(), value);
    EXPECT_SUCCESS(cudaGraphLaunch(exec, stream));
    EXPECT_SUCCESS(cudaStreamSynchronize(stream));
    EXPECT_EQ(source, target);
  }
  EXPECT_SUCCESS(cudaGraphExecDestroy(exec));
  EXPECT_SUCCESS(cudaGraphDestroy(graph));
  EXPECT_SUCCESS(cudaFree(device));
}

TEST_F(Capture, MemsetsAndHostFunctionsMayBeCaptured) {
  Words words(2);
  words.set(0, 3);
  capture_and_run([&](cudaStream_t stream) {
    EXPECT_SUCCESS(cudaMemsetAsync(words.get(), 0xff, 4, stream));
    EXPECT_SUCCESS(cudaLaunchHostFunc(
        stream, [](void* p) { static_cast<uint32_t*>(p)[1] = static_cast<uint32_t*>(p)[0]; }, words.get()));
  });
  EXPECT_EQ(0xffffffffu, words[0]);
  EXPECT_EQ(0xffffffffu, words[1]);
}

TEST_F(Capture, AFailedLaunchInvalidatesTheCapture) {
  StreamHandle stream;
  begin(stream);
  launch_too_large(stream);
  EXPECT_CODE(cudaErrorInvalidValue, cudaGetLastError());
  EXPECT_CODE(cudaErrorStreamCaptureInvalidated, end(stream));
}

}  // namespace
}  // namespace mx::facts
