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
    // Not x itself, which has a node, nor a view, which has none of its own.
    if (record) result = NDArray(without_edge(result.impl()));
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

ViewNode::ViewNode(Edge root, Place place)
    : FunctionNode("view", {std::move(root)}, 1, [place = std::move(place)](const Step& step) {
        if (step.wanted[0] != 0) step.results[0] = spread(step.heads[0], place);
      }) {}

Ref<Node> make_view_node(const Edge& edge, const ArrayImpl& root, const ArrayImpl& view) {
  return make_node<ViewNode>(edge, std::make_shared<ViewPlace>(ViewPlace{Layout(root), Layout(view)}));
}

// Nothing is recorded of a view until it is used (edge_of).
void record_view(ArrayImpl&, ArrayImpl& view) {
  const Layout root(*view.base);
  MX_CHECK(root.contiguous() || apart(root), InvalidArgument,
           "[view] expected a recorded array whose elements do not share memory, got shape ", root.shape,
           " with strides ", root.strides, "; use clone() before requires_grad_()");
}

void check_assignable(ArrayImpl& target, const char* op) {
  const ArrayImpl& root = target.root();
  const Edge edge = edge_of(root);
  MX_CHECK(!edge || !edge.node->leaf(), InvalidState, "[", op,
           "] expected an array that may be changed in place, got one of shape ", root.shape,
           " with requires_grad_() while recording; use NoGrad, or detach()");
  MX_CHECK(&root == &target || Layout(root).contiguous() || !is_floating(target.dtype), InvalidState, "[", op,
           "] expected a view of a contiguous array while recording, got one of shape ", root.shape,
           " with strides ", root.strides);
}

namespace {

// What an assigned array was like: how a gradient of the elements that it was assigned to becomes its own.
struct Source {
  Shape shape;
  DType dtype;
  Context context;

  explicit Source(const ArrayImpl& array)
      : shape(array.shape), dtype(array.dtype), context(array.context()) {}
  NDArray gradient(const NDArray& head) const {
    Shape summed = shape;  // (leading dimensions of 1 may be more than the target had)
    while (summed.rank() > head.rank()) summed.erase(0);
    return sum_to(head, summed).reshape(shape).to(dtype).to(context);
  }
};

NDArray zeros_at(const NDArray& head, const ViewPlace& place) {
  NDArray rest = head.clone();
  rest.as_strided(place.view.shape, place.view.strides, place.view.offset - place.root.offset).fill_(0);
  return rest;
}

// root = source
Ref<Node> make_assignment(const Edge& from, const Source& source) {
  return make_node<FunctionNode>("assign", std::vector<Edge>{from}, 1, [source](const Step& step) {
    if (step.wanted[0] != 0) step.results[0] = source.gradient(step.heads[0]);
  });
}

// root[place] = source, or a number.
Ref<Node> make_assignment(const Edge& before, const Edge& from, const Source& source, const Place& place) {
  return make_node<FunctionNode>("assign", std::vector<Edge>{before, from}, 1,
                                 [source, place](const Step& step) {
                                   const NDArray& head = step.heads[0];
                                   if (step.wanted[0] != 0) step.results[0] = zeros_at(head, *place);
                                   if (step.wanted[1] != 0)
                                     step.results[1] = source.gradient(pick(head, place));
                                 });
}

}  // namespace

void record_assignment(ArrayImpl& target, ArrayImpl* source) {
  if (!is_floating(target.dtype)) return;
  ArrayImpl& root = target.root();
  const Edge from = source != nullptr && source->recorded() ? edge_of(*source) : Edge{};
  const Source like(source != nullptr ? *source : target);
  if (&root == &target) {
    if (from) {
      set_edge(root, make_assignment(from, like), 0);
    } else {
      root.set_extension({}, false);
    }
    return;
  }
  const Edge before = edge_of(root);
  if (!before && !from) return;
  const auto place = std::make_shared<const ViewPlace>(ViewPlace{Layout(root), Layout(target)});
  set_edge(root, make_assignment(before, from, like, place), 0);
}

}  // namespace mx::detail
