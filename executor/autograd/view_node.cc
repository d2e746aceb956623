#include "executor/autograd/view_node.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/detail/contains.h"
#include "ndarray/grad_mode.h"
#include "ndarray/tensor.h"
#include "operators/gradient.h"
#include "operators/indexing.h"
#include "operators/reduce.h"

namespace mx::detail {
namespace {

using Place = std::shared_ptr<const ViewPlace>;

// The range [low, high) of elements of the memory that a layout spans.
struct Span {
  int64_t low, high;
  explicit Span(const Layout& layout) : low(layout.offset), high(layout.offset + 1) {
    for (int i = 0; i < layout.shape.rank(); ++i) {
      const int64_t reach = (layout.shape[i] - 1) * layout.strides[i];
      (reach < 0 ? low : high) += reach;
    }
  }
  bool contains(const Span& other) const { return low <= other.low && other.high <= high; }
  void include(const Span& other) {
    low = std::min(low, other.low);
    high = std::max(high, other.high);
  }
};

// Returns the dimensions of size other than 1, sorted by stride, the largest first.
std::vector<int> by_stride(const Layout& layout) {
  std::vector<int> order;
  for (int i = 0; i < layout.shape.rank(); ++i)
    if (layout.shape[i] != 1) order.push_back(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return std::abs(layout.strides[a]) > std::abs(layout.strides[b]); });
  return order;
}

// Returns true only if no two elements share memory. May return false although none do.
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

/// Returns where the view is if the elements of its root, in their order, are contiguous. None if that is not
/// a layout.
std::optional<Layout> moved_to_contiguous(const ViewPlace& place) {
  const Layout &root = place.root, &view = place.view;
  const std::vector<int> order = by_stride(root);
  const Strides strides = contiguous_strides(root.shape);
  // The first element of the view, in coordinates of the root.
  Strides low;
  low.resize(root.shape.rank(), 0);
  int64_t rest = view.offset - root.offset;
  for (const int d : order) {
    if (root.strides[d] <= 0) return std::nullopt;
    low[d] = std::min(rest / root.strides[d], root.shape[d] - 1);
    if (low[d] < 0) return std::nullopt;
    rest -= low[d] * root.strides[d];
  }
  if (rest != 0 || view.shape.numel() == 0) return std::nullopt;
  Strides high = low;
  Layout moved = view;
  moved.offset = 0;
  for (const int d : order) moved.offset += low[d] * strides[d];
  // A dimension of the view must go along one of the root, and stay within it.
  for (int i = 0; i < view.shape.rank(); ++i) {
    if (view.shape[i] == 1 || view.strides[i] == 0) continue;
    const auto along = std::find_if(order.begin(), order.end(), [&](int d) {
      return std::abs(view.strides[i]) >= root.strides[d] && view.strides[i] % root.strides[d] == 0;
    });
    if (along == order.end()) return std::nullopt;
    const int64_t step = view.strides[i] / root.strides[*along], reach = (view.shape[i] - 1) * step;
    moved.strides[i] = step * strides[*along];
    (reach < 0 ? low : high)[*along] += reach;
  }
  for (const int d : order)
    if (low[d] < 0 || high[d] >= root.shape[d]) return std::nullopt;
  return moved;
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
  // Sum the gradients of elements that broadcasting repeated.
  Layout view = place.view;
  Axes repeated;
  for (int i = 0; i < view.shape.rank(); ++i)
    if (view.strides[i] == 0 && view.shape[i] > 1) {
      repeated.push_back(i);
      view.shape[i] = 1;
    }
  const NDArray g = repeated.empty() ? head : sum(head, repeated, true);
  if (view.shape.numel() == root.shape.numel() && root.contiguous() && view.offset == root.offset) {
    // If the view only permutes the dimensions of the root, a transpose is enough.
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
  // A view by as_strided() may show elements beyond the root. They are constants.
  Span span(root);
  span.include(Span(view));
  NDArray flat = zeros({span.high - span.low}, head.dtype(), head.context());
  if (apart(view)) {
    at(flat, view, span.low).copy_from(g);
  } else {
    const NDArray places = at(arange(0, span.high - span.low, 1, i64, head.context()), view, span.low);
    index_add_(flat, places.flatten(), g.flatten());
  }
  return root.contiguous() && flat.numel() == root.shape.numel() ? flat.reshape(root.shape)
                                                                 : at(flat, root, span.low).clone();
}

NDArray pick_values(const NDArray& x, const ViewPlace& place) {
  const Layout &root = place.root, &view = place.view;
  if (same_order(place)) return x.reshape(view.shape);
  if (view.shape.numel() == 0) return zeros(view.shape, x.dtype(), x.context());
  if (x.numel() == 0) return zeros(view.shape, x.dtype(), x.context());
  Span span(root);
  const bool within = span.contains(Span(view));
  span.include(Span(view));
  if (root.contiguous() && within) {
    const NDArray rows = x.to_contiguous();
    return rows.as_strided(view.shape, view.strides, rows.impl().offset + view.offset - span.low);
  }
  NDArray flat = zeros({span.high - span.low}, x.dtype(), x.context());
  at(flat, root, span.low).copy_from(x);
  return at(flat, view, span.low);
}

// Computes values() without recording, then records one node for the result if x is recorded.
template <class Values, class Back>
NDArray recorded(const char* name, const NDArray& x, const Values& values, Back back) {
  const bool record = x.impl().recorded();
  NDArray result;
  {
    NoGrad pause;
    result = values();
    // A new array, because the result may be x itself, which has a node, or a view, which takes its node from
    // its root. A copy if elements share memory: an array with a node of its own must have a place for each
    // of them (record_view).
    if (record) result = result.impl().may_overlap() ? result.clone() : NDArray(without_edge(result.impl()));
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

ViewNode::ViewNode(Edge root, Place place, uint64_t scope)
    : FunctionNode("view", {std::move(root)}, 1, [place = std::move(place)](const Step& step) {
        if (step.wanted[0] != 0) step.results[0] = spread(step.heads[0], place);
      }) {
  set_scope(scope);
}

Ref<Node> make_view_node(const Edge& edge, const ArrayImpl& root, const ArrayImpl& view) {
  ViewPlace place{Layout(root), Layout(view)};
  // Gradients are contiguous, whatever the layout of their arrays. So the place is looked for in a contiguous
  // root.
  if (std::optional<Layout> moved = moved_to_contiguous(place)) {
    place.view = *moved;
    place.root.strides = contiguous_strides(place.root.shape);
    place.root.offset = 0;
  }
  // A view that was taken before its root was recorded counts as taken when the root was recorded.
  const uint64_t scope = std::max(NodeScope::of_view(view), edge.node->scope());
  return make_node<ViewNode>(edge, std::make_shared<const ViewPlace>(std::move(place)), scope);
}

// The node of a view is made when it is first needed (edge_of).
void record_view(ArrayImpl&, ArrayImpl& view) {
  NodeScope::add_view(view);
  // Where elements of a view share memory, as after broadcasting, a place in memory is not one element of it.
  // Views of such a view belong to its base.
  while (view.base->base && !view.base->has_own_node() && !apart(Layout(*view.base)))
    view.base = view.base->base;
  const Layout root(*view.base);
  MX_CHECK(root.contiguous() || apart(root), InvalidArgument,
           "[view] expected a recorded array whose elements do not share memory, got shape ", root.shape,
           " with strides ", root.strides, "; use clone() before requires_grad_()");
}

void check_assignable(ArrayImpl& target, const char* op) {
  const ArrayImpl& root = target.root();
  const Edge edge = edge_of(root);
  const char* const why_fixed = edge ? edge.node->why_fixed() : nullptr;
  MX_CHECK(why_fixed == nullptr, InvalidState, "[", op,
           "] expected an array that may be changed in place, got one of shape ", root.shape, ' ', why_fixed);
  MX_CHECK(&root == &target || Layout(root).contiguous() || !is_floating(target.dtype), InvalidState, "[", op,
           "] expected a view of a contiguous array while recording, got one of shape ", root.shape,
           " with strides ", root.strides);
  // Elements beyond the root have no place in its gradient.
  MX_CHECK(&root == &target || !is_floating(target.dtype) || contains(root, target), InvalidState, "[", op,
           "] expected a view of elements of the recorded array of shape ", root.shape,
           " while recording, got a view by as_strided() of shape ", target.shape, " with strides ",
           target.strides, " that shows elements beyond it; use NoGrad");
}

namespace {

// The shape, type and device of an assigned array. gradient() converts a gradient of the assigned elements to
// one of this array.
struct Source {
  Shape shape;
  DType dtype;
  Context context;

  explicit Source(const ArrayImpl& array)
      : shape(array.shape), dtype(array.dtype), context(array.context()) {}
  NDArray gradient(const NDArray& head) const {
    Shape summed = shape;  // the source may have more leading dimensions of 1 than the target
    while (summed.rank() > head.rank()) summed.erase(0);
    return sum_to(head, summed).reshape(shape).to(dtype).to(context);
  }
};

NDArray zeros_at(const NDArray& head, const ViewPlace& place) {
  NDArray rest = head.clone();
  rest.as_strided(place.view.shape, place.view.strides, place.view.offset - place.root.offset).fill_(0);
  return rest;
}

// Makes the node of root = source.
Ref<Node> make_assignment(const Edge& from, const Source& source) {
  return make_node<FunctionNode>("assign", std::vector<Edge>{from}, 1, [source](const Step& step) {
    if (step.wanted[0] != 0) step.results[0] = source.gradient(step.heads[0]);
  });
}

// Makes the node of root[place] = source, where the source may be a number.
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
