// Node: what was recorded of one operation: who made its inputs, and how a gradient goes back through it. The
// nodes that an array leads to are its graph; it lives as long as somebody has an array that leads to it.
// Internal.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "ndarray/detail/array_impl.h"
#include "ndarray/ndarray.h"

namespace mx::detail {

class Node;

/// Output `output` of `node`; no node: needs no gradient.
struct Edge {
  Ref<Node> node;
  uint32_t output = 0;
  explicit operator bool() const { return static_cast<bool>(node); }
};

/// What goes back through a node.
struct Step {
  std::span<const NDArray> heads;   ///< one per output; an empty handle counts as zero
  std::span<const uint8_t> wanted;  ///< one per input
  std::span<NDArray> results;       ///< one per input, empty at first
  bool keep;                        ///< saved values will be needed again
  bool recorded;                    ///< the thread records: saved values must be those of the graph
};

class Node : public ArrayExtension {
 public:
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  virtual const char* name() const = 0;
  virtual size_t outputs() const { return 1; }
  virtual std::span<const Edge> edges() const { return {}; }
  /// Sets the results that are wanted. Throws InvalidState when what it needs is gone or has changed.
  virtual void back(const Step& step) = 0;
  /// Does back() give arrays that nobody else has, where they are not heads?
  virtual bool gives_new() const { return false; }
  virtual bool leaf() const { return false; }
  /// Lets go of what was saved for back().
  virtual void release() noexcept {}

  /// Larger than those of all nodes that it leads to; in one thread, larger than those of all before it.
  uint64_t order() const { return order_; }

  /// What users have attached to outputs.
  struct Attachment {
    uint32_t output;
    bool retains = false;
    NDArray grad{};
    GradHook hook{};
    uint64_t id = 0;
  };
  HookHandle attach(Attachment attachment);
  /// Calls hooks in their order, keeps retained gradients; returns what goes on. `touched`: a user has seen
  /// it.
  NDArray passed(uint32_t output, NDArray head, bool& touched);
  NDArray retained(uint32_t output) const;
  bool attached() const { return has_attachments_.load(std::memory_order_acquire); }

  /// The pass that keeps its gradient for this node here, and where; others keep it elsewhere.
  std::atomic<const void*> pass{nullptr};
  uint32_t place_in_pass = 0;

 protected:
  Node() = default;
  virtual ~Node();
  /// After edges are known.
  void set_order();
  void end() noexcept final;
  virtual void free() noexcept { delete this; }

 private:
  struct Attachments {
    std::mutex mutex;
    std::vector<Attachment> list;
    uint64_t next_id = 0;
  };
  uint64_t order_ = 0;
  std::atomic<bool> has_attachments_{false};
  std::shared_ptr<Attachments> attachments_;
  Node* next_to_free_ = nullptr;
  friend class Freeing;
};

/// An array with requires_grad_(): gradients end here.
class Leaf final : public Node {
 public:
  Leaf(const ArrayImpl& array, GradReq req);
  const char* name() const override { return "leaf"; }
  bool leaf() const override { return true; }
  void back(const Step&) override {}

  void set_req(GradReq req);
  NDArray grad() const;
  void set_grad(NDArray grad);
  /// `own`: nobody else has the array. Recorded where the thread records.
  void accumulate(NDArray gradient, bool own);

 private:
  mutable std::mutex mutex_;
  GradReq req_;
  Shape shape_;
  DType dtype_;
  Context context_;
  NDArray grad_;
};

/// Makes an array an output of a node.
void set_edge(ArrayImpl& array, Ref<Node> node, uint32_t output);
/// Where the array's gradient goes; empty when it is not recorded.
Edge edge_of(const ArrayImpl& array);
/// The array's memory as an array of the graph: the same value, output of `edge`.
NDArray with_edge(const ArrayImpl& array, const Edge& edge);
/// A handle to the memory that leads nowhere: may be kept by the node that makes it.
Ref<ArrayImpl> without_edge(const ArrayImpl& array);
/// Shape, type and device of an array without its memory.
Ref<ArrayImpl> shape_of(const ArrayImpl& array);

}  // namespace mx::detail
