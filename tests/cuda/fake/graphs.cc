// Captures and graphs.
#include <algorithm>
#include <map>
#include <utility>

#include "tests/cuda/fake/state.h"

namespace mx::fake_cuda {
namespace {

using Nodes = std::vector<CUgraphNode_st*>;

/// A capture forbids unsafe calls to threads in the mode `mode`.
bool forbids(const Capture& capture, cudaStreamCaptureMode mode) {
  if (!capture.active || capture.mode == cudaStreamCaptureModeRelaxed || mode == cudaStreamCaptureModeRelaxed)
    return false;
  if (capture.thread == std::this_thread::get_id()) return true;
  return mode == cudaStreamCaptureModeGlobal && capture.mode == cudaStreamCaptureModeGlobal;
}

/// Returns whether all ends of the graph are among the nodes after which the origin would go on.
bool is_joined(const CUgraph_st& graph, const Nodes& tips) {
  std::set<const CUgraphNode_st*> ends;
  for (const auto& node : graph.nodes) {
    ends.insert(node.get());
    for (const CUgraphNode_st* before : node->after) ends.erase(before);
  }
  return std::all_of(ends.begin(), ends.end(), [&](const CUgraphNode_st* end) {
    return std::find(tips.begin(), tips.end(), end) != tips.end();
  });
}

void end_capture(const std::shared_ptr<Capture>& capture) {
  capture->active = false;
  for (const cudaStream_t stream : capture->streams) {
    stream->capture = nullptr;
    stream->tips.clear();
  }
  state().captures.erase(capture);
}

std::unique_ptr<CUgraph_st> clone(const CUgraph_st& graph) {
  auto copy = std::make_unique<CUgraph_st>();
  std::map<const CUgraphNode_st*, CUgraphNode_st*> twins;
  for (const auto& node : graph.nodes) {
    auto twin = std::make_unique<CUgraphNode_st>();
    twin->kind = node->kind;
    twin->step = node->step;
    twin->priority = node->priority;
    for (const CUgraphNode_st* before : node->after) twin->after.push_back(twins.at(before));
    if (node->child != nullptr) twin->child = clone(*node->child);
    twins[node.get()] = twin.get();
    copy->nodes.push_back(std::move(twin));
  }
  return copy;
}

bool has_allocations(const CUgraph_st& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const auto& node) {
    return node->kind == NodeKind::allocation || node->kind == NodeKind::release;
  });
}

bool same_shape(const CUgraph_st& a, const CUgraph_st& b) {
  if (a.nodes.size() != b.nodes.size()) return false;
  const auto places = [](const CUgraph_st& graph, const CUgraphNode_st& node) {
    std::set<size_t> found;
    for (const CUgraphNode_st* before : node.after)
      for (size_t i = 0; i < graph.nodes.size(); ++i)
        if (graph.nodes[i].get() == before) found.insert(i);
    return found;
  };
  for (size_t i = 0; i < a.nodes.size(); ++i) {
    const CUgraphNode_st &x = *a.nodes[i], &y = *b.nodes[i];
    if (x.kind != y.kind || places(a, x) != places(b, y)) return false;
    if (x.child != nullptr && !same_shape(*x.child, *y.child)) return false;
  }
  return true;
}

/// Appends the tasks of a graph, those without predecessors after `entry`. Returns the tasks at its ends.
std::vector<size_t> flatten(const CUgraph_st& graph, const std::vector<size_t>& entry,
                            std::vector<Task>& tasks) {
  std::map<const CUgraphNode_st*, std::vector<size_t>> exits;
  std::set<size_t> ends;
  for (const auto& node : graph.nodes) {
    std::vector<size_t> after = node->after.empty() ? entry : std::vector<size_t>();
    for (const CUgraphNode_st* before : node->after)
      after.insert(after.end(), exits[before].begin(), exits[before].end());
    if (node->child != nullptr) {
      exits[node.get()] = flatten(*node->child, after, tasks);
      if (node->child->nodes.empty()) exits[node.get()] = after;
    } else {
      exits[node.get()] = {tasks.size()};
      Task& task = tasks.emplace_back();
      task.step = node->step;
      task.after = after;
    }
    for (const CUgraphNode_st* before : node->after)
      for (const size_t task : exits[before]) ends.erase(task);
    ends.insert(exits[node.get()].begin(), exits[node.get()].end());
  }
  return {ends.begin(), ends.end()};
}

/// Notes the priority of each kernel: its own, or that of the stream.
void note_priorities(const CUgraph_st& graph, const int* stream) {
  for (const auto& node : graph.nodes) {
    if (node->kind == NodeKind::kernel)
      state().graph_priorities.push_back(stream != nullptr ? *stream : node->priority);
    if (node->child != nullptr) note_priorities(*node->child, stream);
  }
}

cudaError_t add_node(cudaGraphNode_t* node, CUgraph_st& graph, const cudaGraphNode_t* after, size_t count,
                     NodeKind kind, const CUgraph_st* child) {
  auto made = std::make_unique<CUgraphNode_st>();
  made->kind = kind;
  made->step = nothing;
  for (size_t i = 0; i < count; ++i) {
    const bool known = std::any_of(graph.nodes.begin(), graph.nodes.end(),
                                   [&](const auto& other) { return other.get() == after[i]; });
    const bool twice = std::find(after, after + i, after[i]) != after + i;
    if (!known || twice) return cudaErrorInvalidValue;
    made->after.push_back(after[i]);
  }
  if (child != nullptr) made->child = clone(*child);
  *node = made.get();
  graph.nodes.push_back(std::move(made));
  return cudaSuccess;
}

}  // namespace

void invalidate(Capture& capture) { capture.valid = false; }

cudaError_t check_unsafe() {
  bool forbidden = false;
  for (const auto& capture : state().captures) {
    if (!forbids(*capture, this_thread().mode)) continue;
    invalidate(*capture);
    forbidden = true;
  }
  return forbidden ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

CUgraphNode_st* capture_node(CUstream_st& stream, Work work) {
  auto node = std::make_unique<CUgraphNode_st>();
  node->kind = work.kind;
  node->step = std::move(work.step);
  node->priority = work.priority;
  node->after = stream.tips;
  CUgraph_st& graph = *stream.capture->graph;
  graph.nodes.push_back(std::move(node));
  return graph.nodes.back().get();
}

}  // namespace mx::fake_cuda

using namespace mx::fake_cuda;

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, this_thread().mode);
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return call([&](Lock&) {
    cudaError_t code = cudaSuccess;
    const cudaStream_t stream = find(handle, code);
    if (stream == nullptr) return code;
    *status = stream->capture == nullptr ? cudaStreamCaptureStatusNone
              : stream->capture->valid   ? cudaStreamCaptureStatusActive
                                         : cudaStreamCaptureStatusInvalidated;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  return call([&](Lock&) {
    cudaError_t code = cudaSuccess;
    const cudaStream_t stream = find(handle, code);
    if (stream == nullptr) return code;
    if (stream->legacy) return cudaErrorStreamCaptureUnsupported;
    if (stream->capture != nullptr) return cudaErrorIllegalState;
    auto capture = std::make_shared<Capture>();
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    capture->origin = stream;
    capture->graph = std::make_unique<CUgraph_st>();
    capture->streams.insert(stream);
    stream->capture = capture;
    stream->tips.clear();
    state().captures.insert(std::move(capture));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  return call([&](Lock&) {
    *graph = nullptr;
    cudaError_t code = cudaSuccess;
    const cudaStream_t stream = find(handle, code);
    if (stream == nullptr) return code;
    const std::shared_ptr<Capture> capture = stream->capture;
    if (capture == nullptr) return cudaErrorIllegalState;
    if (capture->origin != stream) return cudaErrorStreamCaptureUnmatched;
    if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id())
      return cudaErrorStreamCaptureWrongThread;
    const bool joined = is_joined(*capture->graph, stream->tips);
    end_capture(capture);
    if (!capture->valid) return cudaErrorStreamCaptureInvalidated;
    if (!joined) return cudaErrorStreamCaptureUnjoined;
    *graph = capture->graph.release();
    return cudaSuccess;
  });
}

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned) {
  *graph = new CUgraph_st;
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return call([&](Lock&) {
    for (void* memory : graph->memory) release(memory);
    delete graph;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return call([&](Lock&) {
    if (nodes == nullptr) {
      *count = graph->nodes.size();
      return cudaSuccess;
    }
    *count = std::min(*count, graph->nodes.size());
    for (size_t i = 0; i < *count; ++i) nodes[i] = graph->nodes[i].get();
    return cudaSuccess;
  });
}

cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                  size_t count) {
  return call([&](Lock&) { return add_node(node, *graph, after, count, NodeKind::empty, nullptr); });
}

cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                       size_t count, cudaGraph_t child) {
  return call([&](Lock&) {
    if (has_allocations(*child)) return cudaErrorNotSupported;
    return add_node(node, *graph, after, count, NodeKind::child, child);
  });
}

cudaError_t cudaGraphKernelNodeGetAttribute(cudaGraphNode_t node, cudaLaunchAttributeID attribute,
                                            cudaLaunchAttributeValue* value) {
  return call([&](Lock&) {
    if (node->kind != NodeKind::kernel || attribute != cudaLaunchAttributePriority)
      return cudaErrorInvalidValue;
    value->priority = node->priority;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph,
                                          unsigned long long flags) {
  return call([&](Lock&) {
    cudaError_t code = cudaSuccess;
    (void)current(code);
    if (code != cudaSuccess) return code;
    if (code = check_unsafe(); code != cudaSuccess) return code;
    auto made = std::make_unique<CUgraphExec_st>();
    made->graph = clone(*graph);
    made->node_priorities = (flags & cudaGraphInstantiateFlagUseNodePriority) != 0;
    *exec = made.release();
    return cudaSuccess;
  });
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo* info) {
  return call([&](Lock&) {
    *info = {};
    if (!same_shape(*exec->graph, *graph)) {
      info->result = cudaGraphExecUpdateErrorTopologyChanged;
      return cudaErrorGraphExecUpdateFailure;
    }
    exec->graph = clone(*graph);
    info->result = cudaGraphExecUpdateSuccess;
    return cudaSuccess;
  });
}

// A launch that runs has copies of the tasks.
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return call([&](Lock&) {
    delete exec;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle) {
  return call([&](Lock&) {
    cudaError_t code = cudaSuccess;
    const cudaStream_t stream = find(handle, code);
    if (stream == nullptr) return code;
    if (stream->capture != nullptr) {
      if (!stream->capture->valid) return cudaErrorStreamCaptureInvalidated;
      CUgraphNode_st* const node = capture_node(*stream, {NodeKind::child, nothing});
      node->child = clone(*exec->graph);
      stream->tips = {node};
      return cudaSuccess;
    }
    state().graph_priorities.clear();
    note_priorities(*exec->graph, exec->node_priorities ? nullptr : &stream->priority);
    auto item = std::make_shared<Item>();
    (void)flatten(*exec->graph, {}, item->tasks);
    if (exec->last != nullptr) item->after.push_back(exec->last);  // launches of one graph do not overlap
    exec->last = item->done;
    append_item(*stream, std::move(item));
    return cudaSuccess;
  });
}
