#include "executor/autograd/node.h"

#include <algorithm>

#include "engine/base/check.h"
#include "engine/detail/at_replay.h"
#include "executor/autograd/grad_cell.h"
#include "executor/autograd/view_node.h"
#include "ndarray/grad_mode.h"

namespace mx::detail {

// Frees nodes in a loop instead of recursively. Otherwise freeing a long chain would overflow the stack.
class Freeing {
 public:
  static void free(Node* node) noexcept {
    node->next_to_free_ = first_;
    first_ = node;
    if (active_) return;
    active_ = true;
    while (first_ != nullptr) {
      Node* const last = first_;
      first_ = last->next_to_free_;
      last->free();
    }
    active_ = false;
  }

 private:
  static thread_local constinit Node* first_;
  static thread_local constinit bool active_;
};
thread_local constinit Node* Freeing::first_ = nullptr;
thread_local constinit bool Freeing::active_ = false;

Node::~Node() = default;

void Node::end() noexcept { Freeing::free(this); }

namespace {

constinit std::atomic<uint64_t> next_scope{1};
thread_local constinit NodeScope* innermost_scope = nullptr;

}  // namespace

NodeScope::NodeScope()
    : id_(next_scope.fetch_add(1, std::memory_order_relaxed)), outer_(std::exchange(innermost_scope, this)) {}
NodeScope::~NodeScope() { innermost_scope = outer_; }

void NodeScope::add_view(const ArrayImpl& view) {
  if (innermost_scope != nullptr) innermost_scope->views_.insert(&view);
}

uint64_t NodeScope::of_view(const ArrayImpl& view) {
  const NodeScope* scope = innermost_scope;
  while (scope != nullptr && !scope->views_.contains(&view)) scope = scope->outer_;
  return scope == nullptr ? 0 : scope->id_;
}

Node::Node() : scope_(innermost_scope == nullptr ? 0 : innermost_scope->id()) {}

void Node::set_order() {
  static thread_local constinit uint64_t latest = 0;
  for (const Edge& edge : edges())
    if (edge) latest = std::max(latest, edge.node->order_);
  order_ = ++latest;
}

HookHandle Node::attach(Attachment attachment) {
  static std::mutex making;
  {
    std::lock_guard lock(making);
    if (attachments_ == nullptr) attachments_ = std::make_shared<Attachments>();
  }
  std::lock_guard lock(attachments_->mutex);
  const uint64_t id = attachment.id = attachments_->next_id++;
  if (attachment.post) {
    has_post_hooks_.store(true, std::memory_order_release);
    any_post_hooks_.store(true, std::memory_order_release);
  }
  attachments_->list.push_back(std::move(attachment));
  has_attachments_.store(true, std::memory_order_release);
  return HookHandle([id, all = std::weak_ptr<Attachments>(attachments_)] {
    const std::shared_ptr<Attachments> attachments = all.lock();
    if (attachments == nullptr) return;
    // Destroyed after the lock is released: the destructor of a hook may run any code.
    GradHook gone;
    PostHook gone_post;
    std::lock_guard list_lock(attachments->mutex);
    std::vector<Attachment>& list = attachments->list;
    const auto it = std::ranges::find(list, id, &Attachment::id);
    if (it == list.end()) return;
    gone = std::move(it->hook);
    gone_post = std::move(it->post);
    list.erase(it);
  });
}

NDArray Node::apply_attachments(uint32_t output, NDArray head, bool& touched) {
  std::vector<GradHook> hooks;
  std::vector<std::shared_ptr<GradCell>> cells;
  {
    std::lock_guard lock(attachments_->mutex);
    for (const Attachment& a : attachments_->list) {
      if (a.output != output) continue;
      if (a.hook) hooks.push_back(a.hook);
      if (std::shared_ptr<GradCell> cell = a.cell.lock()) cells.push_back(std::move(cell));
    }
  }
  for (const GradHook& hook : hooks) {
    touched = true;
    const NDArray other = hook(head);
    if (!other.defined()) continue;
    MX_CHECK(other.shape() == head.shape() && other.dtype() == head.dtype(), InvalidArgument, "[", name(),
             "] expected a hook that returns a gradient of ", head.dtype(), ' ', head.shape(), ", got ",
             other.dtype(), ' ', other.shape());
    head = apart_from_gradients(other);
  }
  for (const std::shared_ptr<GradCell>& cell : cells) cell->accumulate(head, false);
  return head;
}

void Node::call_post_hooks(const std::shared_ptr<GradCell>& cell) {
  std::vector<PostHook> hooks;
  {
    std::lock_guard lock(attachments_->mutex);
    for (const Attachment& a : attachments_->list)
      if (a.post) hooks.push_back(a.post);
  }
  for (const PostHook& hook : hooks) hook(Ref<Node>(this), cell);
}

void set_edge(ArrayImpl& array, Ref<Node> node, uint32_t output) {
  array.set_extension({Ref<ArrayExtension>::adopt(node.leave()), output}, true);
}

void init_edge(ArrayImpl& array, Ref<Node> node, uint32_t output) {
  array.init_extension({Ref<ArrayExtension>::adopt(node.leave()), output});
}

namespace {

// The extension of an array that has a cell is a CellEdge, which holds both the edge and the cell. The number
// kWithCell in place of an output marks such an extension.
constexpr uint32_t kWithCell = UINT32_MAX;

struct CellEdge final : ArrayExtension {
  CellEdge(const Edge& e, std::shared_ptr<GradCell> c) : edge(e), cell(std::move(c)) {}
  void end() noexcept override { delete this; }
  const Edge edge;
  const std::shared_ptr<GradCell> cell;
};

// Returns the edge that the extension of an array holds, without regard to the root of a view.
Edge own_edge(const ArrayImpl::Extension& extension) {
  if (!extension.node) return {};
  if (extension.output == kWithCell) return static_cast<const CellEdge*>(extension.node.get())->edge;
  return {Ref<Node>(static_cast<Node*>(extension.node.get())), extension.output};
}

// Returns the edge of a view. Its extension caches a node that was made for the root's node of that time. If
// the root has another node now, a new one is made.
Edge edge_of_view(ArrayImpl& view) {
  for (;;) {
    const Edge root = edge_of(*view.base);
    if (!root) return {};
    const ArrayImpl::Extension known = view.extension();
    Edge edge = own_edge(known);
    if (edge && static_cast<const ViewNode*>(edge.node.get())->shows(root)) return edge;
    edge = {make_view_node(root, *view.base, view), 0};
    if (view.exchange_extension(known.node.get(), {Ref<ArrayExtension>(edge.node.get()), 0})) return edge;
  }  // if the exchange failed, another thread has set a node meanwhile
}

}  // namespace

Edge edge_of(const ArrayImpl& array) {
  if (array.base && !array.has_own_node()) return edge_of_view(const_cast<ArrayImpl&>(array));
  return array.look_at_extension(own_edge);
}

void set_cell(ArrayImpl& array, const Edge& edge, std::shared_ptr<GradCell> cell) {
  const bool own = edge.node->leaf() || array.has_own_node();
  array.set_extension({Ref<ArrayExtension>::adopt(new CellEdge(edge, std::move(cell))), kWithCell}, own);
}

std::shared_ptr<GradCell> cell_of(const ArrayImpl& array) {
  const Edge edge = edge_of(array);  // if the node of a view is out of date, this drops its cell too
  if (!edge) return nullptr;
  const ArrayImpl::Extension extension = array.extension();
  if (extension.node && extension.output == kWithCell)
    return static_cast<const CellEdge*>(extension.node.get())->cell;
  return edge.node->leaf() ? static_cast<const Leaf*>(edge.node.get())->cell() : nullptr;
}

Ref<ArrayImpl> without_edge(const ArrayImpl& array) {
  return ArrayImpl::make(array.storage, array.dtype, array.shape, array.strides, array.offset);
}

NDArray with_edge(const ArrayImpl& array, const Edge& edge) {
  NDArray made(without_edge(array));
  if (!edge) return made;
  if (array.may_overlap()) {
    const NoGrad pause;
    made = made.clone();
  }
  init_edge(made.impl(), edge.node, edge.output);
  return made;
}

namespace {

// Returns a storage without memory, one per thread for the CPU. It can be shared, since it is never read.
Ref<Storage> no_memory(Context context) {
  if (!context.is_cpu()) return Storage::make(0, context);
  static thread_local const Ref<Storage> none = Storage::make(0, cpu());
  return none;
}

}  // namespace

Ref<ArrayImpl> shape_of(const ArrayImpl& array) {
  return ArrayImpl::make(no_memory(array.context()), array.dtype, array.shape,
                         Strides::filled(array.shape.rank(), 0), 0);
}

void SavedValue::leave_out_replays() {
  ReplayCount* const here = replays_of_recording();
  if (here == nullptr || !recording_repeats(*array->storage->maker())) return;
  remade_by = Ref<ReplayCount>(here);
  version -= here->replays.load(std::memory_order_relaxed);
}

void throw_changed(const ArrayImpl& value, uint32_t changes, const std::string& what,
                   const std::string& when) {
  throw InvalidState(concat("[backward] expected ", what, ", ", value.dtype, ' ', value.shape,
                            ", to be unchanged since ", when, ", got one that was changed in place ", changes,
                            " times; change a clone() instead"));
}

}  // namespace mx::detail
