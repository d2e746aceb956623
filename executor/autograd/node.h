// Node: the record of one operation: the nodes of its inputs, and the function that computes gradients of the
// inputs from gradients of the outputs. All nodes reachable from an array are its graph. Internal.
//
// Ownership. An array owns its node, and a node owns the nodes of its inputs. Nothing is owned in the other
// direction:
//
//   array --> node --> nodes of inputs --> ...
//     |         |
//     |         +--> memory of saved values (SavedValue: storage and layout, without a node)
//     +--> gradient (GradCell)
//
// An array's node changes when the array is changed in place. If a node owned an array, a later change could
// make the array lead to that node, and neither would ever be freed. So nodes own memory, never arrays.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ndarray/detail/array_impl.h"
#include "ndarray/detail/flag_lock.h"
#include "ndarray/ndarray.h"

namespace mx::detail {

class GradCell;
class Node;

/// Output `output` of `node`. An edge without a node means that no gradient is needed.
struct Edge {
  Ref<Node> node;
  uint32_t output = 0;
  explicit operator bool() const { return static_cast<bool>(node); }
};

/// One call of Node::back().
struct Step {
  Node& node;                       ///< the node whose back() is called
  std::span<const NDArray> heads;   ///< gradients, one per output; an empty handle counts as zero
  std::span<const uint8_t> wanted;  ///< one per input: not 0 if its gradient is wanted
  std::span<NDArray> results;       ///< gradients, one per input; initially empty
  bool keep;                        ///< saved values will be needed by a later pass
  bool recorded;                    ///< the thread is recording: saved values must be arrays of the graph
};

class Node : public ArrayExtension {
 public:
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  virtual const char* name() const = 0;
  virtual size_t outputs() const { return 1; }
  virtual std::span<const Edge> edges() const { return {}; }
  /// Computes the wanted results. Unless Step::keep is set, it takes the saved values out of the node, so
  /// that they are freed when it returns; if it throws, it puts them back. Throws InvalidState if a value was
  /// changed, or if another call has taken the values. Several threads may call it at once.
  virtual void back(const Step& step) = 0;
  /// True if back() returns arrays that nothing else holds, apart from heads that it passes on.
  virtual bool returns_fresh_arrays() const { return false; }
  virtual bool leaf() const { return false; }
  /// Returns why an array with this node must not be changed in place while recording, as the end of a
  /// message: "got one of shape ... REASON". Null if it may be changed.
  virtual const char* why_fixed() const { return nullptr; }
  /// True for the node of a view, which leads to the node of its root. It is made when somebody asks for it.
  virtual bool is_view() const { return false; }

  /// Returns the NodeScope in which the node was made; 0: none. For the node of a view: in which the view
  /// was.
  uint64_t scope() const { return scope_; }

  /// Returns a number that is larger than those of all nodes reachable from this one, and than those of all
  /// earlier nodes of the same thread.
  uint64_t order() const { return order_; }

  /// Called after the gradient of a leaf was updated (post_accumulate.h).
  using PostHook = std::function<void(const Ref<Node>& leaf, const std::shared_ptr<GradCell>& cell)>;
  /// Something that a user attached to an output: a hook, or a cell that keeps the gradient (retain_grad()).
  struct Attachment {
    uint32_t output;
    std::weak_ptr<GradCell> cell{};
    GradHook hook{};
    PostHook post{};
    uint64_t id = 0;
  };
  HookHandle attach(Attachment attachment);
  /// Calls the output's hooks in order, then adds the gradient to the cells that retain it. Returns the
  /// gradient with which the pass continues. Sets `touched` if a hook has received the gradient: the hook may
  /// have kept it.
  NDArray apply_attachments(uint32_t output, NDArray head, bool& touched);
  /// Calls the hooks of a leaf whose gradient was updated, in order.
  void call_post_hooks(const std::shared_ptr<GradCell>& cell);
  /// Returns true if the node has had such a hook.
  bool post_hooked() const { return has_post_hooks_.load(std::memory_order_acquire); }
  /// Returns true if any node of the process has had one.
  static bool any_post_hooked() { return any_post_hooks_.load(std::memory_order_acquire); }
  bool attached() const { return has_attachments_.load(std::memory_order_acquire); }

  /// The backward pass that stores its gradient for this node at index `place_in_pass`. Other passes that
  /// reach the node at the same time store theirs in their own maps.
  std::atomic<const void*> pass{nullptr};
  uint32_t place_in_pass = 0;

 protected:
  Node();
  virtual ~Node();
  /// Sets order(). Call it when the edges are set.
  void set_order();
  /// To be called before the node is shared.
  void set_scope(uint64_t scope) { scope_ = scope; }
  void end() noexcept final;
  virtual void free() noexcept { delete this; }

  /// Of a FlagLock that guards what back() takes out of the node.
  std::atomic<bool> saved_locked_{false};

 private:
  struct Attachments {
    std::mutex mutex;
    std::vector<Attachment> list;
    uint64_t next_id = 0;
  };
  uint64_t order_ = 0;
  uint64_t scope_;
  std::atomic<bool> has_attachments_{false};
  std::atomic<bool> has_post_hooks_{false};
  static inline constinit std::atomic<bool> any_post_hooks_{false};
  std::shared_ptr<Attachments> attachments_;
  Node* next_to_free_ = nullptr;
  friend class Freeing;
};

/// Marks the nodes that this thread makes until the end of the scope. Nodes of an inner scope have its mark
/// only. The node of a view is made when it is first needed, but it gets the mark of the scope in which the
/// view was taken.
class NodeScope {
 public:
  NodeScope();
  ~NodeScope();
  NodeScope(const NodeScope&) = delete;
  NodeScope& operator=(const NodeScope&) = delete;
  uint64_t id() const { return id_; }
  /// To be called for each view of a recorded array that the thread takes.
  static void add_view(const ArrayImpl& view);
  /// Returns the id of the innermost scope in which the view was taken; 0: none.
  static uint64_t of_view(const ArrayImpl& view);

 private:
  const uint64_t id_;
  NodeScope* const outer_;
  std::unordered_set<const ArrayImpl*> views_;  // some may have been destroyed
};

/// The node of an array with requires_grad_(): a leaf of the graph, which collects a gradient.
class Leaf final : public Node {
 public:
  Leaf() = default;  // its order is 0: it has no edges
  const char* name() const override { return "leaf"; }
  bool leaf() const override { return true; }
  const char* why_fixed() const override { return why_fixed_; }
  /// `reason` must live as long as the process. To be called before another thread can access the node.
  void set_why_fixed(const char* reason) { why_fixed_ = reason; }
  void back(const Step&) override {}

  /// Not thread-safe: to be called before the node is shared.
  void set_array(const ArrayImpl& array, const std::shared_ptr<GradCell>& cell) {
    memory_ = array.storage;
    cell_ = cell;
  }
  /// Returns how often the array's memory has been changed.
  uint32_t version() const { return memory_->version(); }
  /// Returns null if the array was destroyed.
  std::shared_ptr<GradCell> cell() const { return cell_.lock(); }

 private:
  const char* why_fixed_ =
      "with requires_grad_(), which must not be changed while recording; use NoGrad, or detach()";
  Ref<Storage> memory_;
  std::weak_ptr<GradCell> cell_;
};

/// Makes the array an output of `node`. A view then has its own node instead of one derived from its root's.
void set_edge(ArrayImpl& array, Ref<Node> node, uint32_t output);
/// The same for an array that no other thread can access yet.
void init_edge(ArrayImpl& array, Ref<Node> node, uint32_t output);
/// Returns the node and the output to which the array's gradient flows; empty if the array is not recorded.
/// The node of a view is made here, at the first call and again if its root has got another node since.
Edge edge_of(const ArrayImpl& array);

/// Returns a new array of the same memory that is an output of `edge`. Returns a copy if elements share
/// memory, because an array with a node of its own must have a place for each of them (record_view).
NDArray with_edge(const ArrayImpl& array, const Edge& edge);
/// Returns a new array of the same memory without a node: one that a node may own.
Ref<ArrayImpl> without_edge(const ArrayImpl& array);
/// Returns an array with the same shape, type and device, without memory.
Ref<ArrayImpl> shape_of(const ArrayImpl& array);

/// A value that a node saved, with the version of its memory at that time.
///
/// A value may be saved while a segment is recorded, in memory that each replay of the segment makes again:
///
///   Segment s = engine.record([&] { h = exp(x);  y = h * h; });   // the product saves h
///   s.replay();                                                   // h gets its first content
///   y.backward(...);                                              // and that is what the gradient reads
///
/// Then replays of that segment are no changes: the value is always that of the last one. For a value that
/// was saved outside of the recording, or in the recording of another segment, each replay is a change.
struct SavedValue {
  Ref<ArrayImpl> array;  ///< without a node
  uint32_t version = 0;
  Ref<ReplayCount> remade_by;  ///< counts replays that are no changes; null if every replay is one

  SavedValue() = default;
  explicit SavedValue(const ArrayImpl& value)
      : array(without_edge(value)), version(value.storage->version()) {
    if (value.storage->maker() != nullptr) [[unlikely]]
      leave_out_replays();
  }
  /// Returns how often its memory was changed since it was saved. `value` is `array`, which may have been
  /// moved away.
  uint32_t changes(const ArrayImpl& value) const {
    const uint32_t now = value.storage->version() - version;
    return remade_by ? now - remade_by->replays.load(std::memory_order_relaxed) : now;
  }

 private:
  void leave_out_replays();
};

/// Throws InvalidState: "[backward] expected WHAT as it was WHEN, got one that was changed in place ...".
[[noreturn]] void throw_changed(const ArrayImpl& value, uint32_t changes, const std::string& what,
                                const std::string& when);

}  // namespace mx::detail
