// Gradients of the operators of fill_ops.cc. The gradient of an element that was copied to several places is
// the sum of the gradients of its copies.
#include "operators/fill_records.h"
#include "operators/indexing.h"
#include "operators/reduce.h"

namespace mx::detail {
namespace {

int64_t product(const Shape& shape, int begin, int end) {
  int64_t n = 1;
  for (int i = begin; i < end; ++i) n *= shape[i];
  return n;
}

/// Removes the border of one dimension, and adds its elements to the elements that they were copied from.
NDArray folded(const NDArray& head, int d, int64_t before, int64_t n, int64_t after, PadMode mode) {
  const NDArray inner = head.slice(d, Slice{before, before + n});
  if (mode == PadMode::constant || before + after == 0) return inner;
  std::vector<int64_t> sources;
  for (int64_t i = -before; i < 0; ++i) sources.push_back(pad_source(i, n, mode));
  for (int64_t i = n; i < n + after; ++i) sources.push_back(pad_source(i, n, mode));
  const NDArray low = head.slice(d, Slice{0, before}), high = head.slice(d, Slice{before + n, {}});
  const NDArray border = before == 0 ? high : after == 0 ? low : mx::concat({low, high}, d);
  return index_add(inner, array(sources, head.context()), border, d);
}

}  // namespace

void gradient_pad(GradientContext& g) {
  const auto& attrs = g.attr<PadAttrs>();
  const PadMode mode = pad_mode(attrs.mode, "pad");
  NDArray head = g.head();
  for (int d = 0; d < head.rank(); ++d) {
    const auto side = static_cast<size_t>(2 * d);
    head = folded(head, d, attrs.widths[side], g.input_shape(0)[d], attrs.widths[side + 1], mode);
  }
  g.set(0, head);
}

void gradient_tile(GradientContext& g) {
  const Shape& repeats = g.attr<TileAttrs>().repeats;
  NDArray head = g.head();
  const int rank = head.rank(), extra = rank - repeats.rank(), own = rank - g.input_shape(0).rank();
  for (int d = extra; d < rank; ++d) {
    const int64_t times = repeats[d - extra];
    if (times == 1) continue;
    Shape shape = head.shape();
    shape[d] = d < own ? 1 : g.input_shape(0)[d - own];
    const int64_t outer = product(shape, 0, d), inner = product(shape, d, rank);
    head = sum(head.reshape({outer, times, inner}), 1).reshape(shape);
  }
  g.set(0, head.reshape(g.input_shape(0)));
}

void gradient_repeat(GradientContext& g) {
  const auto& attrs = g.attr<RepeatAttrs>();
  const Shape& shape = g.input_shape(0);
  const int axis = normalize_axis(attrs.axis, shape.rank(), "repeat");
  const int64_t outer = product(shape, 0, axis + 1), inner = product(shape, axis + 1, shape.rank());
  g.set(0, sum(g.head().reshape({outer, attrs.count, inner}), 1).reshape(shape));
}

void gradient_roll(GradientContext& g) {
  const auto& attrs = g.attr<RollAttrs>();
  const Shape& shape = g.input_shape(0);
  if (attrs.axes.empty() || shape.numel() == 0) return g.set(0, g.head());
  Shape back = attrs.shifts;
  for (int i = 0; i < back.rank(); ++i)
    back[i] = -(back[i] % shape[normalize_axis(attrs.axes[i], shape.rank(), "roll")]);
  g.set(0, roll(g.head(), back, attrs.axes));
}

void gradient_tril(GradientContext& g) { g.set(0, tril(g.head(), g.attr<TriangleAttrs>().k)); }
void gradient_triu(GradientContext& g) { g.set(0, triu(g.head(), g.attr<TriangleAttrs>().k)); }

}  // namespace mx::detail
