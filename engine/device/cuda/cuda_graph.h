// CUDA graphs. Private to engine/device/cuda/.
//
// Each node is captured separately, in thread-local mode, and becomes a child graph: its edges are then those
// that the caller names, however the work inside was enqueued. Other threads are not restricted meanwhile.
// The capturing thread must not make calls that CUDA considers unsafe (cudaMalloc, cudaFree, cudaEventQuery
// and such). If this library needs one, it makes it under CaptureExempt (cuda_error.h). So memory can be
// allocated during capture, from the device's pool as always.
//
// Thread-safety: as device.h says of builders and graphs.
#pragma once

#include <array>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "engine/device/capture.h"
#include "engine/device/cuda/cuda_device.h"
#include "engine/device/cuda/cuda_watch.h"

namespace mx {

struct CudaGraphDeleter {
  void operator()(cudaGraph_t graph) const noexcept;
  void operator()(cudaGraphExec_t exec) const noexcept;
};
using CudaGraphHandle = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, CudaGraphDeleter>;
using CudaGraphExecHandle = std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, CudaGraphDeleter>;

/// Runs tasks at once, as CudaStream does, on a stream that captures. Keeps the first error of a task.
class CudaCapture final : public CapturingStream, public KernelErrors {
 public:
  /// Throws CudaError.
  CudaCapture(CudaDevice& device, GraphMemory& memory, StreamKind kind);
  ~CudaCapture() override;
  void submit(Task task) override;

  /// Start and end the capture of one node. end() returns null and the reason if nothing valid was captured.
  void begin();
  CudaGraphHandle end(cudaError_t& code) noexcept;
  std::exception_ptr take_error() { return std::exchange(error_, nullptr); }
  KernelError* watch(Describe describe) override;
  std::vector<std::shared_ptr<WatchedWord>> take_words() { return std::exchange(words_, {}); }

 private:
  CudaDevice& cuda_;
  const int id_;
  cudaStream_t stream_ = nullptr;
  std::exception_ptr error_;
  std::vector<std::shared_ptr<WatchedWord>> words_;
};

class CudaGraph final : public DeviceGraph {
 public:
  CudaGraph(CudaDevice& device, CudaGraphExecHandle exec, size_t nodes, std::unique_ptr<GraphMemory> memory,
            std::vector<std::shared_ptr<WatchedWord>> words)
      : device_(device),
        exec_(std::move(exec)),
        nodes_(nodes),
        memory_(std::move(memory)),
        words_(std::move(words)) {}
  ~CudaGraph() override;
  void launch(Stream& stream) override;
  size_t nodes() const override { return nodes_; }

 private:
  CudaDevice& device_;
  CudaGraphExecHandle exec_;
  const size_t nodes_;
  const std::unique_ptr<GraphMemory> memory_;
  const std::vector<std::shared_ptr<WatchedWord>> words_;  // of the kernels in the graph
};

class CudaGraphBuilder final : public CapturingBuilder {
 public:
  /// Throws CudaError.
  explicit CudaGraphBuilder(CudaDevice& device);
  ~CudaGraphBuilder() override;

 private:
  CudaCapture& stream();
  void add_node(std::span<const NodeId> after, const std::function<void(Stream&)>& enqueue) override;
  std::unique_ptr<DeviceGraph> make_graph() override;

  CudaDevice& cuda_;
  CudaGraphHandle graph_;
  std::vector<cudaGraphNode_t> nodes_;
  std::array<std::unique_ptr<CudaCapture>, 4> streams_;  // by the kind of the node, which sets its priority
};

}  // namespace mx
