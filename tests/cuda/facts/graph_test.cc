// Graphs: children, updates, concurrent launches, lifetimes. Source: CUDA Programming Guide, "CUDA Graphs";
// CUDA Runtime API, "Graph Management".
#include <vector>

#include "tests/cuda/facts/facts.h"

namespace mx::facts {
namespace {

cudaGraph_t captured(const std::function<void(cudaStream_t)>& work) {
  StreamHandle stream;
  EXPECT_SUCCESS(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  work(stream);
  cudaGraph_t graph = nullptr;
  EXPECT_SUCCESS(cudaStreamEndCapture(stream, &graph));
  return graph;
}

cudaGraphExec_t instantiated(cudaGraph_t graph, unsigned flags = 0) {
  cudaGraphExec_t exec = nullptr;
  EXPECT_SUCCESS(cudaGraphInstantiateWithFlags(&exec, graph, flags));
  return exec;
}

class Graphs : public Facts {};

TEST_F(Graphs, TwoLaunchesOfOneExecutableDoNotOverlap) {
  Words words(2);
  cudaGraph_t graph = captured([&](cudaStream_t s) { launch_crowd(words.get(), words.get() + 1, s); });
  cudaGraphExec_t exec = instantiated(graph);
  StreamHandle a, b;
  for (int i = 0; i < 5; ++i) {
    EXPECT_SUCCESS(cudaGraphLaunch(exec, a));
    EXPECT_SUCCESS(cudaGraphLaunch(exec, b));
  }
  EXPECT_SUCCESS(cudaDeviceSynchronize());
  EXPECT_EQ(1u, words[1]);
  EXPECT_SUCCESS(cudaGraphExecDestroy(exec));
  EXPECT_SUCCESS(cudaGraphDestroy(graph));
}

TEST_F(Graphs, IndependentNodesRunAtOnce) {
  uint32_t* words = nullptr;
  ASSERT_EQ(cudaSuccess, cudaMalloc(reinterpret_cast<void**>(&words), 8));
  ASSERT_EQ(cudaSuccess, cudaMemset(words, 0, 8));
  cudaGraph_t parent = nullptr;
  EXPECT_SUCCESS(cudaGraphCreate(&parent, 0));
  for (int i = 0; i < 4; ++i) {
    cudaGraph_t child = captured([&](cudaStream_t s) { launch_crowd(words, words + 1, s); });
    cudaGraphNode_t node = nullptr;
    EXPECT_SUCCESS(cudaGraphAddChildGraphNode(&node, parent, nullptr, 0, child));
    EXPECT_SUCCESS(cudaGraphDestroy(child));  // the parent has a copy
  }
  cudaGraphExec_t exec = instantiated(parent);
  StreamHandle stream;
  EXPECT_SUCCESS(cudaGraphLaunch(exec, stream));
  EXPECT_SUCCESS(cudaStreamSynchronize(stream));
  uint32_t most = 0;
  EXPECT_SUCCESS(cudaMemcpy(&most, words + 1, 4, cudaMemcpyDeviceToHost));
  EXPECT_EQ(4u, most);
  EXPECT_SUCCESS(cudaGraphExecDestroy(exec));
  EXPECT_SUCCESS(cudaGraphDestroy(parent));
  EXPECT_SUCCESS(cudaFree(words));
}

TEST_F(Graphs, AnExecutableMayBeDestroyedWhileItRuns) {
  Words words(2);
  cudaGraph_t graph = captured([&](cudaStream_t s) {
    launch_gate(words.get(), s);
    launch_write(words.get() + 1, 9, s);
  });
  cudaGraphExec_t exec = instantiated(graph);
  EXPECT_SUCCESS(cudaGraphDestroy(graph));
  StreamHandle stream;
  EXPECT_SUCCESS(cudaGraphLaunch(exec, stream));
  EXPECT_SUCCESS(cudaGraphExecDestroy(exec));
  EXPECT_CODE(cudaErrorNotReady, cudaStreamQuery(stream));
  words.set(0, 1);
  EXPECT_SUCCESS(cudaStreamSynchronize(stream));
  EXPECT_EQ(9u, words[1]);
}

TEST_F(Graphs, AnUpdateChangesParametersButNotTheShape) {
  Words words(2);
  const auto one = [&](uint32_t value) {
    return captured([&](cudaStream_t s) { launch_write(words.get(), value, s); });
  };
  cudaGraph_t first = one(1), second = one(2);
  cudaGraph_t longer = captured([&](cudaStream_t s) {
    launch_write(words.get(), 3, s);
    launch_write(words.get() + 1, 3, s);
  });
  cudaGraphExec_t exec = instantiated(first);
  cudaGraphExecUpdateResultInfo info{};
  EXPECT_SUCCESS(cudaGraphExecUpdate(exec, second, &info));
  EXPECT_EQ(cudaGraphExecUpdateSuccess, info.result);
  StreamHandle stream;
  EXPECT_SUCCESS(cudaGraphLaunch(exec, stream));
  EXPECT_SUCCESS(cudaStreamSynchronize(stream));
  EXPECT_EQ(2u, words[0]);
  EXPECT_CODE(cudaErrorGraphExecUpdateFailure, cudaGraphExecUpdate(exec, longer, &info));
  EXPECT_EQ(cudaGraphExecUpdateErrorTopologyChanged, info.result);
  EXPECT_SUCCESS(cudaGraphLaunch(exec, stream));  // still works as before
  EXPECT_SUCCESS(cudaStreamSynchronize(stream));
  EXPECT_EQ(2u, words[0]);
  EXPECT_SUCCESS(cudaGraphExecDestroy(exec));
  for (cudaGraph_t graph : {first, second, longer}) EXPECT_SUCCESS(cudaGraphDestroy(graph));
}

// An update of an executable that runs takes effect from the next launch on.
TEST_F(Graphs, AnUpdateDoesNotWaitForALaunchThatRuns) {
  Words words(2);
  const auto make = [&](uint32_t value) {
    return captured([&](cudaStream_t s) {
      launch_gate(words.get(), s);
      launch_write(words.get() + 1, value, s);
    });
  };
  cudaGraph_t first = make(4), second = make(5);
  cudaGraphExec_t exec = instantiated(first);
  StreamHandle stream;
  EXPECT_SUCCESS(cudaGraphLaunch(exec, stream));
  cudaGraphExecUpdateResultInfo info{};
  auto updating = std::async(std::launch::async, [&] { return cudaGraphExecUpdate(exec, second, &info); });
  EXPECT_EQ(std::future_status::ready, updating.wait_for(std::chrono::seconds(10)));
  words.set(0, 1);
  EXPECT_SUCCESS(updating.get());
  EXPECT_SUCCESS(cudaStreamSynchronize(stream));
  EXPECT_EQ(4u, words[1]);
  EXPECT_SUCCESS(cudaGraphLaunch(exec, stream));
  EXPECT_SUCCESS(cudaStreamSynchronize(stream));
  EXPECT_EQ(5u, words[1]);
  EXPECT_SUCCESS(cudaGraphExecDestroy(exec));
  for (cudaGraph_t graph : {first, second}) EXPECT_SUCCESS(cudaGraphDestroy(graph));
}

TEST_F(Graphs, CapturedKernelsHaveThePriorityOfTheirStream) {
  int least = 0, greatest = 0;
  EXPECT_SUCCESS(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  ASSERT_LT(greatest, least);
  Words word;
  for (const int priority : {least, greatest}) {
    cudaStream_t stream = nullptr;
    EXPECT_SUCCESS(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority));
    EXPECT_SUCCESS(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    launch_write(word.get(), 1, stream);
    cudaGraph_t graph = nullptr;
    EXPECT_SUCCESS(cudaStreamEndCapture(stream, &graph));
    cudaGraphNode_t node = nullptr;
    size_t count = 1;
    EXPECT_SUCCESS(cudaGraphGetNodes(graph, &node, &count));
    cudaKernelNodeAttrValue value{};
    EXPECT_SUCCESS(cudaGraphKernelNodeGetAttribute(node, cudaLaunchAttributePriority, &value));
    EXPECT_EQ(priority, value.priority);
    EXPECT_SUCCESS(cudaGraphDestroy(graph));
    EXPECT_SUCCESS(cudaStreamDestroy(stream));
  }
}

TEST_F(Graphs, ADuplicateEdgeIsRefused) {
  cudaGraph_t graph = nullptr;
  EXPECT_SUCCESS(cudaGraphCreate(&graph, 0));
  cudaGraphNode_t a = nullptr, b = nullptr;
  EXPECT_SUCCESS(cudaGraphAddEmptyNode(&a, graph, nullptr, 0));
  const cudaGraphNode_t twice[] = {a, a};
  EXPECT_CODE(cudaErrorInvalidValue, cudaGraphAddEmptyNode(&b, graph, twice, 2));
  EXPECT_SUCCESS(cudaGraphDestroy(graph));
}

TEST_F(Graphs, AChildGraphCannotContainAllocations) {
  cudaGraph_t child = captured([&](cudaStream_t s) {
    void* memory = nullptr;
    EXPECT_SUCCESS(cudaMallocAsync(&memory, 1024, s));
    EXPECT_SUCCESS(cudaFreeAsync(memory, s));
  });
  cudaGraph_t parent = nullptr;
  EXPECT_SUCCESS(cudaGraphCreate(&parent, 0));
  cudaGraphNode_t node = nullptr;
  EXPECT_CODE(cudaErrorNotSupported, cudaGraphAddChildGraphNode(&node, parent, nullptr, 0, child));
  EXPECT_SUCCESS(cudaGraphDestroy(parent));
  EXPECT_SUCCESS(cudaGraphDestroy(child));
}

}  // namespace
}  // namespace mx::facts
