#include "engine/device/cuda/cuda_graph.h"

#include <algorithm>

#include "engine/base/check.h"
#include "engine/device/cuda/cuda_stream.h"

namespace mx {

namespace {

[[noreturn]] void throw_refused(const char* what, cudaError_t code, std::exception_ptr because) {
  std::string text;
  if (because != nullptr) {
    try {
      std::rethrow_exception(because);
    } catch (...) {
      text = "; " + current_exception_text();
    }
  }
  throw InvalidState(detail::concat("[", what, "] expected work that a CUDA graph can hold, got ",
                                    cudaGetErrorName(code), " (", cudaGetErrorString(code), ")", text));
}

}  // namespace

void CudaGraphDeleter::operator()(cudaGraph_t graph) const noexcept {
  const CaptureExempt exempt;
  if (cudaGraphDestroy(graph) != cudaSuccess) (void)cudaGetLastError();  // lost, or the process is ending
}

// An execution in flight continues: CUDA frees the graph when the execution has ended.
void CudaGraphDeleter::operator()(cudaGraphExec_t exec) const noexcept {
  const CaptureExempt exempt;
  if (cudaGraphExecDestroy(exec) != cudaSuccess) (void)cudaGetLastError();
}

CudaCapture::CudaCapture(CudaDevice& device, GraphMemory& memory, StreamKind kind)
    : CapturingStream(device, memory, kind), cuda_(device), id_(device.id()) {
  const CudaGuard guard(id_);
  const CaptureExempt exempt;
  stream_ = make_cuda_stream(kind);
}

CudaCapture::~CudaCapture() {
  const CudaGuard guard(id_);
  const CaptureExempt exempt;
  if (cudaStreamDestroy(stream_) != cudaSuccess) (void)cudaGetLastError();
}

void CudaCapture::submit(Task task) {
  MX_CHECK(task, InvalidArgument, "[submit] expected a task, got an empty function");
  const CudaGuard guard(id_);
  try {
    (void)cudaGetLastError();  // left by other code on this thread; the task is not to blame for it
    KernelContext context(device_, stream_, 0);
    task(context);
    MX_CUDA(cudaGetLastError());  // of kernel launches, which return nothing
  } catch (...) {
    (void)cudaGetLastError();
    if (error_ == nullptr) error_ = std::current_exception();
  }
}

KernelError* CudaCapture::watch(Describe describe) {
  words_.push_back(std::make_shared<WatchedWord>(cuda_, std::move(describe)));
  return words_.back()->get();
}

void CudaCapture::begin() { MX_CUDA(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal)); }

CudaGraphHandle CudaCapture::end(cudaError_t& code) noexcept {
  cudaGraph_t captured = nullptr;
  code = cudaStreamEndCapture(stream_, &captured);
  if (code != cudaSuccess) (void)cudaGetLastError();
  CudaGraphHandle graph(captured);
  if (code != cudaSuccess) graph = nullptr;
  return graph;
}

CudaGraphBuilder::CudaGraphBuilder(CudaDevice& device) : CapturingBuilder(device), cuda_(device) {
  const CudaGuard guard(cuda_.id());
  cudaGraph_t graph = nullptr;
  MX_CUDA(cudaGraphCreate(&graph, 0));
  graph_.reset(graph);
}

CudaGraphBuilder::~CudaGraphBuilder() {
  const CudaGuard guard(cuda_.id());
  graph_.reset();
}

CudaCapture& CudaGraphBuilder::stream() {
  std::unique_ptr<CudaCapture>& found = streams_[static_cast<size_t>(node_kind())];
  if (found == nullptr) found = std::make_unique<CudaCapture>(cuda_, *memory_, node_kind());
  return *found;
}

void CudaGraphBuilder::add_node(std::span<const NodeId> after, const std::function<void(Stream&)>& enqueue) {
  const CudaGuard guard(cuda_.id());
  std::vector<cudaGraphNode_t> before;
  for (const NodeId id : after) before.push_back(nodes_[id]);
  std::sort(before.begin(), before.end());  // CUDA refuses an edge that is there twice
  before.erase(std::unique(before.begin(), before.end()), before.end());
  nodes_.reserve(nodes_.size() + 1);

  std::exception_ptr error;
  cudaError_t code = cudaSuccess;
  CudaGraphHandle work;
  CudaCapture& stream = this->stream();
  try {
    stream.begin();
    try {
      enqueue(stream);
    } catch (...) {
      error = std::current_exception();
    }
    if (std::exception_ptr first = stream.take_error()) error = error != nullptr ? error : first;
    work = stream.end(code);
  } catch (const CudaError& e) {
    cuda_.failed(e.code(), "cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal)", __FILE__,
                 __LINE__);
    throw;
  }
  if (is_capture_error(code)) throw_refused("add", code, error);
  if (error != nullptr) {
    try {
      std::rethrow_exception(error);
    } catch (const CudaError& e) {
      if (is_capture_error(e.code())) throw_refused("add", e.code(), nullptr);
      if (is_sticky(e.code())) cuda_.failed(e.code(), "a task of a graph", __FILE__, __LINE__);
      throw;
    }
  }
  if (code != cudaSuccess || work == nullptr) {
    std::rethrow_exception(cuda_.failed(code != cudaSuccess ? code : cudaErrorStreamCaptureInvalidated,
                                        "cudaStreamEndCapture(stream, &graph)", __FILE__, __LINE__));
  }

  size_t size = 0;
  MX_CUDA(cudaGraphGetNodes(work.get(), nullptr, &size));
  cudaGraphNode_t node = nullptr;
  if (size == 0) {
    MX_CUDA(cudaGraphAddEmptyNode(&node, graph_.get(), before.data(), before.size()));
  } else {
    // CUDA copies the child graph. Nodes that a child cannot contain, such as memory nodes, are an error
    // here.
    code = cudaGraphAddChildGraphNode(&node, graph_.get(), before.data(), before.size(), work.get());
    if (code == cudaErrorNotSupported || code == cudaErrorInvalidValue) {
      (void)cudaGetLastError();
      throw_refused("add", code, nullptr);
    }
    MX_CUDA(code);
  }
  nodes_.push_back(node);
}

std::unique_ptr<DeviceGraph> CudaGraphBuilder::make_graph() {
  const CudaGuard guard(cuda_.id());
  const CaptureExempt exempt;
  cudaGraphExec_t exec = nullptr;
  // Without the flag, all nodes would have the priority of the stream on which the graph is launched.
  constexpr auto kFlags = cudaGraphInstantiateFlagUseNodePriority;
  if (const cudaError_t code = cudaGraphInstantiateWithFlags(&exec, graph_.get(), kFlags);
      code != cudaSuccess) {
    std::rethrow_exception(
        cuda_.failed(code, "cudaGraphInstantiateWithFlags(&exec, graph, flags)", __FILE__, __LINE__));
  }
  std::vector<std::shared_ptr<WatchedWord>> words;
  for (const auto& stream : streams_) {
    if (stream == nullptr) continue;
    for (std::shared_ptr<WatchedWord>& word : stream->take_words()) words.push_back(std::move(word));
  }
  CudaGraphExecHandle handle(exec);
  return std::make_unique<CudaGraph>(cuda_, std::move(handle), nodes_.size(), std::move(memory_),
                                     std::move(words));
}

CudaGraph::~CudaGraph() {
  const CudaGuard guard(device_.id());
  exec_.reset();
}

void CudaGraph::launch(Stream& stream) {
  check_launch(device_, stream);
  stream.submit([this, &stream](KernelContext& context) {
    for (const std::shared_ptr<WatchedWord>& word : words_) dynamic_cast<CudaStream&>(stream).launches(word);
    MX_CUDA(cudaGraphLaunch(exec_.get(), static_cast<cudaStream_t>(context.native_stream())));
  });
  memory_->launched(stream);
}

}  // namespace mx
