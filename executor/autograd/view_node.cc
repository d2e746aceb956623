#include "executor/autograd/view_node.h"

#include <algorithm>

#include "engine/base/check.h"
#include "ndarray/grad_mode.h"
#include "ndarray/tensor.h"
#include "operators/gradient.h"
#include "operators/indexing.h"
#include "operators/reduce.h"

namespace mx::detail {
namespace {

using Place = std::shared_ptr<const ViewPlace>;

// The elements [low, high) of the memory that a layout spans.
struct Span {
  int64_t low, high;
  explicit Span(const Layout& layout) : low(layout.offset), high(layout.offset + 1) {
    for (int i = 0; i < layout.shape.rank(); ++i) {
      const int64_t reach = (layout.shape[i] - 1) * layout.strides[i];
      (reach < 0 ? low : high) += reach;
    }
  }
};

// Dimensions of more than one element, in the order of their strides, largest first.
std::vector<int> by_stride(const Layout& layout) {
  std::vector<int> order;
  for (int i = 0; i < layout.shape.rank(); ++i)
    if (layout.shape[i] != 1) order.push_back(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return std::abs(layout.strides[a]) > std::abs(layout.strides[b]); });
  return order;
}

// Is it certain that no two elements share memory?
bool apart(const Layout& layout) {
  const std::vector<int> order = by_stride(layout);
  int64_t reach = 0;
  for (auto d = order.rbegin(); d != order.rend(); ++d) {
    const int64_t stride = std::abs(layout.strides[*d]);
    if (stride <= reach) return false;
    reach += (layout.shape[*d] - 1) * stride;
  }
  return true;
}

bool same_order(const ViewPlace& place) {
  return place.view.shape.numel() == place.root.shape.numel() && place.view.offset == place.root.offset &&
         place.view.contiguous() && place.root.contiguous();
}

NDArray at(const NDArray& flat, const Layout& layout, int64_t low) {
  return flat.as_strided(layout.shape, layout.strides, layout.offset - low);
}

NDArray spread_values(const NDArray& head, const ViewPlace& place) {
  const Layout& root = place.root;
  if (same_order(place)) return head.reshape(root.shape);
  // What broadcasting repeated comes together again.
  Layout view = place.view;
  Axes repeated;
  for (int i = 0; i < view.shape.rank(); ++i)
    if (view.strides[i] == 0 && view.shape[i] > 1) {
      repeated.push_back(i);
      view.shape[i] = 1;
    }
  const NDArray g = repeated.empty() ? head : sum(head, repeated, true);
  if (view.shape.numel() == root.shape.numel() && root.contiguous() && view.offset == root.offset) {
    // All elements in another order of the dimensions?
    Layout turned = view;
    Shape order;
    for (int i = 0; i < view.shape.rank(); ++i)
      if (view.shape[i] == 1) order.push_back(i);
    for (int d : by_stride(view)) order.push_back(d);
    for (int i = 0; i < order.rank(); ++i) {
      turned.shape[i] = view.shape[static_cast<int>(order[i])];
      turned.strides[i] = view.strides[static_cast<int>(order[i])];
    }
    if (turned.contiguous()) return g.transpose(order).reshape(root.shape);
  }
  if (root.shape.numel() == 0 || view.shape.numel() == 0)
    return zeros(root.shape, head.dtype(), head.context());
  const Span span(root);
  NDArray flat = zeros({span.high - span.low}, head.dtype(), head.context());
  if (apart(view)) {
    at(flat, view, span.low).copy_from(g);
  } else {
    const NDArray places = at(arange(0, span.high - span.low, 1, i64, head.context()), view, span.low);
    index_add_(flat, places.flatten(), g.flatten());
  }
  return root.contiguous() ? flat.reshape(root.shape) : at(flat, root, span.low).clone();
}

NDArray pick_values(const NDArray& x, const ViewPlace& place) {
  const Layout &root = place.root, &view = place.view;
  if (same_order(place)) return x.reshape(view.shape);
  if (view.shape.numel() == 0) return zeros(view.shape, x.dtype(), x.context());
  const Span span(root);
  if (root.contiguous()) {
    const NDArray rows = x.to_contiguous();
    return rows.as_strided(view.shape, view.strides, rows.impl().offset + view.offset - span.low);
  }
  NDArray flat = zeros({span.high - span.low}, x.dtype(), x.context());
  at(flat, root, span.low).copy_from(x);
  return at(flat, view, span.low);
}

// Values without recording, then one node for them.
template <class Values, class Back>
NDArray recorded(const char* name, const NDArray& x, const Values& values, Back back) {
  const bool record = x.impl().recorded();
  NDArray result;
  {
    NoGrad pause;
    result = values();
    if (record && result.ref().get() == x.ref().get()) result = NDArray(without_edge(x.impl()));
  }
  if (record) record_function(name, x, result, std::move(back));
  return result;
}

}  // namespace

bool Layout::contiguous() const { return Tensor::is_contiguous(shape, strides); }

NDArray spread(const NDArray& head, const Place& place) {
  return recorded(
      "view_gradient", head, [&] { return spread_values(head, *place); },
      [place](const NDArray& h) { return pick(h, place); });
}

NDArray pick(const NDArray& x, const Place& place) {
  return recorded(
      "view", x, [&] { return pick_values(x, *place); },
      [place](const NDArray& h) { return spread(h, place); });
}

ViewNode::ViewNode(Edge root, const ArrayImpl* identity, Place place)
    : FunctionNode("view", {std::move(root)}, 1,
                   [place](const Step& step) {
                     if (step.wanted[0] != 0) step.results[0] = spread(step.heads[0], place);
                   }),
      identity_(identity),
      place_(std::move(place)) {}

void record_view(ArrayImpl& base, ArrayImpl& view) {
  const Edge edge = edge_of(base);
  if (const auto* of = dynamic_cast<const ViewNode*>(edge.node.get()); of != nullptr && base.base) {
    auto place = std::make_shared<ViewPlace>(ViewPlace{of->place().root, Layout(view)});
    return set_edge(view, make_node<ViewNode>(of->root(), of->identity(), std::move(place)), 0);
  }
  MX_CHECK(apart(Layout(base)), InvalidArgument,
           "[view] expected a recorded array whose elements do not share memory, got shape ", base.shape,
           " with strides ", base.strides, "; use clone() before requires_grad_()");
  auto place = std::make_shared<ViewPlace>(ViewPlace{Layout(base), Layout(view)});
  set_edge(view, make_node<ViewNode>(edge, &base, std::move(place)), 0);
}

void refresh_view(ArrayImpl& view) {
  const ArrayImpl& root = *view.base;
  if (!root.extension || !is_floating(view.dtype)) return;
  if (view.extension) {
    const auto* node = dynamic_cast<const ViewNode*>(static_cast<const Node*>(view.extension.get()));
    if (node == nullptr || node->identity() != &root) return;
    if (root.extension.get() == node->root().node.get() && root.extension_output == node->root().output)
      return;
  }
  auto place = std::make_shared<ViewPlace>(ViewPlace{Layout(root), Layout(view)});
  set_edge(view, make_node<ViewNode>(edge_of(root), &root, std::move(place)), 0);
}

namespace {

// The leaf that an array is or shows, if any.
const Node* leaf_of(const ArrayImpl& array) {
  if (!array.extension) return nullptr;
  const Node* node = static_cast<const Node*>(array.extension.get());
  if (const auto* view = dynamic_cast<const ViewNode*>(node)) node = view->root().node.get();
  return node->leaf() ? node : nullptr;
}

}  // namespace

void check_assignable(ArrayImpl& target, const char* op) {
  const ArrayImpl& root = target.base ? *target.base : target;
  for (const ArrayImpl* array : {static_cast<const ArrayImpl*>(&target), &root})
    MX_CHECK(leaf_of(*array) == nullptr, InvalidState, "[", op,
             "] expected an array that may be changed in place, got one of shape ", array->shape,
             " with requires_grad_() while recording; use NoGrad, or detach()");
  MX_CHECK(&root == &target || Layout(root).contiguous() || !is_floating(target.dtype), InvalidState, "[", op,
           "] expected a view of a contiguous array while recording, got one of shape ", root.shape,
           " with strides ", root.strides);
}

void record_assignment(ArrayImpl& target, ArrayImpl* source) {
  if (!is_floating(target.dtype)) return;
  ArrayImpl& root = target.base ? *target.base : target;
  const bool whole = &root == &target;
  const Edge from = source != nullptr && source->recorded() ? edge_of(*source) : Edge{};
  if (whole && !from) {
    root.flags.fetch_and(static_cast<uint8_t>(~kRecorded), std::memory_order_relaxed);
    root.extension = nullptr;
    return;
  }
  // Sizes and type of the source, to go back to.
  const Ref<ArrayImpl> like = from ? shape_of(*source) : nullptr;
  const auto to_source = [like](const NDArray& head) {
    Shape shape = like->shape;  // (leading dimensions of 1 are in nobody's way)
    while (shape.rank() > head.rank()) shape.erase(0);
    return sum_to(head, shape).reshape(like->shape).to(like->dtype).to(like->context());
  };
  if (whole) {
    return set_edge(root,
                    make_node<FunctionNode>("assign", std::vector<Edge>{from}, 1,
                                            [to_source](const Step& step) {
                                              if (step.wanted[0] != 0)
                                                step.results[0] = to_source(step.heads[0]);
                                            }),
                    0);
  }
  auto place = std::make_shared<const ViewPlace>(ViewPlace{Layout(root), Layout(target)});
  const Edge before = root.extension ? edge_of(root) : Edge{};
  const auto back = [place, to_source](const Step& step) {
    const NDArray& head = step.heads[0];
    if (step.wanted[0] != 0) {
      NDArray rest = head.clone();
      rest.as_strided(place->view.shape, place->view.strides, place->view.offset - place->root.offset)
          .fill_(0);
      step.results[0] = rest;
    }
    if (step.wanted[1] != 0) step.results[1] = to_source(pick(head, place));
  };
  set_edge(root, make_node<FunctionNode>("assign", std::vector<Edge>{before, from}, 1, back), 0);
  set_edge(target, make_node<ViewNode>(edge_of(root), &root, place), 0);
}

}  // namespace mx::detail
