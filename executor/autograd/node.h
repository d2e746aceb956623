// Node: what was recorded of one operation: which nodes made its inputs, and how a gradient goes back through
// it. The nodes that an array leads to are its graph. Internal.
//
// Who owns what. An array owns its node, a node owns the nodes of its inputs, and both own nothing in the
// other direction:
//
//   array --> node --> nodes of inputs --> ...
//     |         |
//     |         +--> memory of saved values (SavedValue: storage and layout, without a node)
//     +--> gradient (GradCell)
//
// An array's node changes when the array is changed in place. If a node owned an array, that array could
// later lead to the node, and neither would ever be freed. So nodes keep memory, never arrays.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ndarray/detail/array_impl.h"
#include "ndarray/ndarray.h"

namespace mx::detail {

class GradCell;
class Node;

/// Output `output` of `node`; no node: needs no gradient.
struct Edge {
  Ref<Node> node;
  uint32_t output = 0;
  explicit operator bool() const { return static_cast<bool>(node); }
};

/// One call of Node::back().
struct Step {
  Node& node;                       ///< whose back() it is
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
  /// Sets the results that are wanted. Throws InvalidState when a value that it needs was released or has
  /// changed.
  virtual void back(const Step& step) = 0;
  /// True if back() returns arrays that nothing else holds, apart from heads that it passes on.
  virtual bool returns_fresh_arrays() const { return false; }
  virtual bool leaf() const { return false; }
  /// Drops what was saved for back().
  virtual void release() noexcept {}

  /// Larger than those of all nodes that it leads to; in one thread, larger than those of all before it.
  uint64_t order() const { return order_; }

  /// What users have attached to an output: a hook, or a cell that keeps the gradient (retain_grad()).
  struct Attachment {
    uint32_t output;
    std::weak_ptr<GradCell> cell{};
    GradHook hook{};
    uint64_t id = 0;
  };
  HookHandle attach(Attachment attachment);
  /// Calls the output's hooks in their order, then adds to the cells that retain the gradient. Returns the
  /// gradient that goes on. `touched` becomes true when a hook has seen it.
  NDArray apply_attachments(uint32_t output, NDArray head, bool& touched);
  bool attached() const { return has_attachments_.load(std::memory_order_acquire); }

  /// The pass that keeps its gradient for this node in place `place_in_pass`. Other passes that reach the
  /// node at the same time keep theirs in a map of their own.
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

/// The node of an array with requires_grad_(): gradients end here.
class Leaf final : public Node {
 public:
  Leaf() = default;  // its order is 0: it leads nowhere
  const char* name() const override { return "leaf"; }
  bool leaf() const override { return true; }
  void back(const Step&) override {}

  /// Before anybody else knows the node.
  void set_cell(const std::shared_ptr<GradCell>& cell) { cell_ = cell; }
  /// Null when the array has gone.
  std::shared_ptr<GradCell> cell() const { return cell_.lock(); }

 private:
  std::weak_ptr<GradCell> cell_;
};

/// Makes an array an output of a node of its own.
void set_edge(ArrayImpl& array, Ref<Node> node, uint32_t output);
/// The same for an array that nobody else knows yet.
void init_edge(ArrayImpl& array, Ref<Node> node, uint32_t output);
/// Where the array's gradient goes; empty when it is not recorded. The node of a view is made here, when it
/// is first asked for and whenever its root has got another node since.
Edge edge_of(const ArrayImpl& array);

/// The array's memory as an array of the graph: the same value, output of `edge`.
NDArray with_edge(const ArrayImpl& array, const Edge& edge);
/// The array's memory as an array without a node: what nodes may keep.
Ref<ArrayImpl> without_edge(const ArrayImpl& array);
/// Shape, type and device of an array without its memory.
Ref<ArrayImpl> shape_of(const ArrayImpl& array);

/// A value as it was when it was saved.
struct SavedValue {
  Ref<ArrayImpl> array;  ///< without a node
  uint32_t version = 0;

  SavedValue() = default;
  explicit SavedValue(const ArrayImpl& value)
      : array(without_edge(value)), version(value.storage->version()) {}
  /// How often its memory has been changed since.
  uint32_t changes() const { return array->storage->version() - version; }
};

/// Throws InvalidState: "[backward] expected WHAT as it was WHEN, got one that was changed in place ...".
[[noreturn]] void throw_changed(const SavedValue& value, const std::string& what, const std::string& when);

}  // namespace mx::detail
