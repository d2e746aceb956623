// Gradients of indexed operators. If an operator reads at indices, its gradient is added at these indices; if
// it writes at indices, its gradient is read there. If several updates go to one place: for `set` the last
// one gets the gradient; for `max` and `min` those that equal the result share it equally.
#include "operators/elementwise_binary.h"
#include "operators/indexing.h"
#include "operators/indexing_records.h"
#include "operators/row_sparse.h"
#include "operators/scan.h"
#include "operators/select.h"
#include "operators/shape_ops.h"
#include "operators/sorting.h"

namespace mx::detail {
namespace {

NDArray zeros_for(const GradientContext& g, size_t i) {
  return zeros_view(g.input_shape(i), g.head().dtype(), g.head().context());
}

// One struct for each writing operator: write() applies the operator to an array, read() reads the places
// that it writes to.

struct Scattering {
  const NDArray& indices;
  int64_t axis;
  NDArray read(const NDArray& x) const { return gather(x, indices, axis); }
  NDArray write(const NDArray& x, const NDArray& updates, Scatter how) const {
    return scatter(x, indices, updates, axis, how);
  }
};

struct Indexing {
  const NDArray& indices;
  int64_t axis;
  NDArray read(const NDArray& x) const { return take(x, indices, axis); }
  NDArray write(const NDArray& x, const NDArray& updates, Scatter how) const {
    return index_update(x, indices, updates, axis, how);
  }
};

struct Putting {
  std::vector<NDArray> indices;
  const PutNdAttrs& attrs;
  NDArray read(const NDArray& x) const { return gather_nd(x, indices, attrs.axes, attrs.position); }
  NDArray write(const NDArray& x, const NDArray& updates, Scatter how) const {
    return put_nd(x, indices, attrs.axes, updates, how, attrs.position);
  }
};

template <class Place>
void gradient_set(GradientContext& g, size_t updates, const Place& at) {
  const NDArray& head = g.head();
  const Context context = head.context();
  if (g.wanted(0)) g.set(0, at.write(head, zeros_view({}, head.dtype(), context), Scatter::set));
  if (!g.wanted(updates)) return;
  const NDArray there = at.read(head);
  // Each update writes its number to its place. If the number is still there after all writes, the update was
  // the last one at that place.
  const NDArray numbers = arange(0, there.numel(), 1, i64, context).reshape(there.shape());
  const NDArray last = at.read(at.write(zeros_view(head.shape(), i64, context), numbers, Scatter::set));
  g.set(updates, where(last == numbers, there, 0));
}

/// Returns for each update the product of the other updates to the same place. With the updates sorted by
/// place, it is the product of those before it times the product of those after it. A division of the total
/// product would fail for zeros and give wrong higher derivatives.
NDArray products_of_others(const NDArray& places, const NDArray& updates) {
  const NDArray order = argsort(places), place = take(places, order), u = take(updates, order);
  const NDArray number = arange(0, places.numel(), 1, i64, places.context());
  const NDArray first = logical_or(place != roll(place, {1}), number == 0);
  const NDArray last = logical_or(place != roll(place, {-1}), number == places.numel() - 1);
  const NDArray before = linear_recurrence(where(first, 0, roll(u, {1})), first.to(u.dtype()));
  const NDArray behind = linear_recurrence(where(last, 0, roll(u, {-1})), last.to(u.dtype()), 0, true);
  return take(before * behind, argsort(order));
}

template <class Place>
void gradient_mul(GradientContext& g, size_t updates, const Place& at) {
  const NDArray &head = g.head(), &u = g.input(updates);
  if (g.wanted(0)) g.set(0, at.write(head, u, Scatter::mul));
  if (!g.wanted(updates)) return;
  const NDArray& x = g.input(0);
  const NDArray places = at.read(arange(0, x.numel(), 1, i64, head.context()).reshape(x.shape()));
  if (places.numel() == 0) return g.set(updates, at.read(head));
  const NDArray others = products_of_others(places.flatten(), u.broadcast_to(places.shape()).flatten());
  g.set(updates, at.read(head * x) * others.reshape(places.shape()));
}

template <class Place>
void gradient_extreme(GradientContext& g, size_t updates, const Place& at) {
  const NDArray &head = g.head(), &y = g.output();
  const NDArray own = g.input(0) == y, theirs = g.input(updates) == at.read(y);
  const NDArray part = head / at.write(own.to(head.dtype()), theirs.to(head.dtype()), Scatter::add);
  if (g.wanted(0)) g.set(0, where(own, part, 0));
  if (g.wanted(updates)) g.set(updates, where(theirs, at.read(part), 0));
}

template <class Place>
void gradient_update(GradientContext& g, size_t updates, const std::string& how, const Place& at) {
  switch (scatter_how(how, "gradient")) {
    case Scatter::set:
      return gradient_set(g, updates, at);
    case Scatter::add:
      if (g.wanted(0)) g.set(0, g.head());
      if (g.wanted(updates)) g.set(updates, at.read(g.head()));
      return;
    case Scatter::mul:
      return gradient_mul(g, updates, at);
    case Scatter::max:
    case Scatter::min:
      return gradient_extreme(g, updates, at);
  }
}

GradientUses uses_for(const std::string& how, uint64_t indices) {
  if (how == "set" || how == "add") return {.inputs = indices};
  return {.inputs = ~uint64_t{0}, .outputs = how == "mul" ? 0u : 1u};
}

std::vector<NDArray> inputs_from(const GradientContext& g, size_t first) {
  std::vector<NDArray> list;
  for (size_t i = first; i < g.inputs(); ++i) list.push_back(g.input(i));
  return list;
}

}  // namespace

void gradient_take(GradientContext& g) {
  const auto& attrs = g.attr<TakeAttrs>();
  Shape shape = g.input_shape(0);
  const int axis = normalize_axis(attrs.axis, shape.rank(), "take");
  const int64_t size = shape[axis];
  NDArray indices = g.input(1).flatten();
  switch (index_mode(attrs.mode, "take")) {
    case IndexMode::raise:
      break;
    case IndexMode::clip:
      indices = clamp(indices.to(i64), 0, size - 1);
      break;
    case IndexMode::wrap:
      indices = mod(indices.to(i64), size);
      break;
  }
  shape[axis] = indices.numel();
  g.set(0, index_add(zeros_for(g, 0), indices, g.head().reshape(shape), axis));
}

void gradient_gather(GradientContext& g) {
  g.set(0, scatter(zeros_for(g, 0), g.input(1), g.head(), g.attr<GatherAttrs>().axis, Scatter::add));
}

void gradient_scatter(GradientContext& g) {
  const auto& attrs = g.attr<UpdateAttrs>();
  gradient_update(g, 2, attrs.how, Scattering{g.input(1), attrs.axis});
}

void gradient_index_update(GradientContext& g) {
  const auto& attrs = g.attr<UpdateAttrs>();
  gradient_update(g, 2, attrs.how, Indexing{g.input(1), attrs.axis});
}

void gradient_put_nd(GradientContext& g) {
  const auto& attrs = g.attr<PutNdAttrs>();
  gradient_update(g, 1, attrs.how, Putting{inputs_from(g, 2), attrs});
}

GradientUses uses_of_update(const Attrs& attrs) { return uses_for(attrs.get<UpdateAttrs>().how, 2); }
GradientUses uses_of_put_nd(const Attrs& attrs) {
  return uses_for(attrs.get<PutNdAttrs>().how, ~uint64_t{3});
}

void gradient_gather_nd(GradientContext& g) {
  const auto& attrs = g.attr<GatherNdAttrs>();
  g.set(0, put_nd(zeros_for(g, 0), inputs_from(g, 1), attrs.axes, g.head(), Scatter::add, attrs.position));
}

void gradient_embedding(GradientContext& g) {
  const auto& attrs = g.attr<EmbeddingAttrs>();
  const NDArray &indices = g.input(1), &head = g.head();
  const int64_t size = g.input_shape(0)[0], count = indices.numel();
  if (!attrs.sparse || count >= size || head.impl().recorded() || !has_row_sparse(head.context()))
    return g.set(0, embedding_gradient(indices, head, size, attrs.padding));
  const NDArray rows = head.reshape({count, g.input_shape(0)[1]});
  g.set(0, make_row_sparse(sum_rows(indices.reshape({count}), rows, size, attrs.padding), size));
}

void gradient_embedding_gradient(GradientContext& g) {
  const auto& attrs = g.attr<EmbeddingGradientAttrs>();
  const NDArray& indices = g.input(0);
  const NDArray taken = embedding(g.head(), indices);
  if (attrs.skip_row < 0) return g.set(1, taken);
  const NDArray skipped = mod(indices.to(i64), attrs.rows) == attrs.skip_row;
  g.set(1, where(skipped.expand_dims(-1), 0, taken));
}

void gradient_masked_select(GradientContext& g) {
  g.set(0, masked_scatter(zeros_for(g, 0), g.input(1), g.head()));
}

void gradient_masked_scatter(GradientContext& g) {
  const NDArray &head = g.head(), &mask = g.input(1);
  if (g.wanted(0)) g.set(0, where(mask, 0, head));
  if (!g.wanted(2)) return;
  // The number of selected elements is not known here. Each selected element goes to the place of its number,
  // and all others to the extra place `count`.
  const Shape& shape = g.input_shape(2);
  const int64_t count = shape.numel();
  const NDArray chosen = mask.broadcast_to(head.shape()).flatten();
  const NDArray places = where(chosen, cumsum(chosen, 0, true), count);
  const NDArray room = zeros_view({count + 1}, head.dtype(), head.context());
  g.set(2, index_add(room, places, head.flatten()).slice(0, Slice{0, count}).reshape(shape));
}

}  // namespace mx::detail
