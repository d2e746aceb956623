#include "executor/autograd/node.h"

#include <algorithm>
#include <array>

#include "engine/base/check.h"
#include "executor/autograd/view_node.h"
#include "ndarray/grad_mode.h"
#include "operators/elementwise_binary.h"

namespace mx::detail {

// Frees nodes one after the other: a chain of any length needs no deep stack.
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
  attachments_->list.push_back(std::move(attachment));
  has_attachments_.store(true, std::memory_order_release);
  return HookHandle([id, all = std::weak_ptr<Attachments>(attachments_)] {
    const std::shared_ptr<Attachments> attachments = all.lock();
    if (attachments == nullptr) return;
    GradHook gone;  // ends after the lock: it may hold anything
    std::lock_guard list_lock(attachments->mutex);
    std::vector<Attachment>& list = attachments->list;
    const auto it = std::ranges::find(list, id, &Attachment::id);
    if (it == list.end()) return;
    gone = std::move(it->hook);
    list.erase(it);
  });
}

NDArray Node::passed(uint32_t output, NDArray head, bool& touched) {
  std::vector<GradHook> hooks;
  {
    std::lock_guard lock(attachments_->mutex);
    for (const Attachment& a : attachments_->list)
      if (a.output == output && a.hook) hooks.push_back(a.hook);
  }
  for (const GradHook& hook : hooks) {
    touched = true;
    const NDArray other = hook(head);
    if (!other.defined()) continue;
    MX_CHECK(other.shape() == head.shape() && other.dtype() == head.dtype(), InvalidArgument, "[", name(),
             "] expected a hook that returns a gradient of ", head.dtype(), ' ', head.shape(), ", got ",
             other.dtype(), ' ', other.shape());
    head = other;
  }
  std::lock_guard lock(attachments_->mutex);
  for (Attachment& a : attachments_->list) {
    if (a.output != output || !a.retains) continue;
    a.grad = a.grad.defined() ? a.grad + head : head.clone();
  }
  return head;
}

NDArray Node::retained(uint32_t output) const {
  if (!attached()) return {};
  std::lock_guard lock(attachments_->mutex);
  for (const Attachment& a : attachments_->list)
    if (a.output == output && a.retains) return a.grad;
  return {};
}

Leaf::Leaf(const ArrayImpl& array, GradReq req)
    : req_(req), shape_(array.shape), dtype_(array.dtype), context_(array.context()) {}

void Leaf::set_req(GradReq req) {
  std::lock_guard lock(mutex_);
  req_ = req;
}

NDArray Leaf::grad() const {
  std::lock_guard lock(mutex_);
  return grad_;
}

void Leaf::set_grad(NDArray grad) {
  MX_CHECK(
      !grad.defined() || (grad.shape() == shape_ && grad.dtype() == dtype_ && grad.context() == context_),
      InvalidArgument, "[set_grad] expected a gradient like its array, ", dtype_, ' ', shape_, " on ",
      context_, ", got ", grad.dtype(), ' ', grad.shape(), " on ", grad.context());
  std::lock_guard lock(mutex_);
  grad_ = std::move(grad);
}

void Leaf::accumulate(NDArray gradient, bool own) {
  std::lock_guard lock(mutex_);
  if (req_ == GradReq::null) return;
  if (grad_.defined() && req_ == GradReq::add) {
    if (grad_.impl().recorded() || gradient.impl().recorded()) {
      grad_ = grad_ + gradient;
    } else {
      NoGrad pause;
      grad_ += gradient;
    }
  } else if (grad_.defined() && !gradient.impl().recorded()) {
    NoGrad pause;
    grad_.copy_from(gradient);
  } else {
    grad_ = own ? std::move(gradient) : gradient.clone();
  }
}

void set_edge(ArrayImpl& array, Ref<Node> node, uint32_t output) {
  array.extension = Ref<ArrayExtension>(node.get());
  array.extension_output = output;
  array.flags.fetch_or(kRecorded, std::memory_order_relaxed);
}

Edge edge_of(const ArrayImpl& array) {
  if (array.base) refresh_view(const_cast<ArrayImpl&>(array));
  if (!array.extension) return {};
  return {Ref<Node>(static_cast<Node*>(array.extension.get())), array.extension_output};
}

Ref<ArrayImpl> without_edge(const ArrayImpl& array) {
  return ArrayImpl::make(array.storage, array.dtype, array.shape, array.strides, array.offset);
}

NDArray with_edge(const ArrayImpl& array, const Edge& edge) {
  if (!edge) return NDArray(without_edge(array));
  if (array.extension.get() == edge.node.get() && array.extension_output == edge.output)
    return NDArray(Ref<ArrayImpl>(const_cast<ArrayImpl*>(&array)));
  Ref<ArrayImpl> made = without_edge(array);
  set_edge(*made, edge.node, edge.output);
  return NDArray(std::move(made));
}

Ref<ArrayImpl> shape_of(const ArrayImpl& array) {
  return ArrayImpl::make(Storage::make(0, array.context()), array.dtype, array.shape,
                         Strides::filled(array.shape.rank(), 0), 0);
}

}  // namespace mx::detail
