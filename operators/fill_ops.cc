// Operators that copy parts of one array into a new one: pad, tile, repeat, roll, triangles.
#include <algorithm>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "ndarray/kernels/strided_loop.h"
#include "ndarray/tensor_copy.h"
#include "operators/cuda_kernels.h"
#include "operators/fill_records.h"
#include "operators/kernels/index_check.h"
#include "operators/shape_ops.h"

namespace mx {

using detail::pad_mode;
using detail::pad_source;
using detail::PadAttrs;
using detail::RepeatAttrs;
using detail::RollAttrs;
using detail::TileAttrs;
using detail::TriangleAttrs;

namespace {

constexpr int64_t kDirectElements = 1024;

// pad

void infer_pad(InferContext& c) {
  const auto& attrs = c.attr<PadAttrs>();
  const PadMode mode = pad_mode(attrs.mode, c.name());
  Shape shape = c.shape(0);
  MX_CHECK(attrs.widths.size() == 2 * shape.size(), InvalidArgument, "[", c.name(), "] expected ",
           2 * shape.size(), " widths for shape ", shape, ", got ", to_string(AttrValue(attrs.widths)));
  for (int d = 0; d < shape.rank(); ++d) {
    const int64_t before = attrs.widths[static_cast<size_t>(2 * d)],
                  after = attrs.widths[static_cast<size_t>(2 * d + 1)];
    MX_CHECK(before >= 0 && after >= 0, InvalidArgument, "[", c.name(),
             "] expected widths of 0 or more, got ", to_string(AttrValue(attrs.widths)));
    MX_CHECK(mode == PadMode::constant || shape[d] > 0 || before + after == 0, InvalidArgument, "[", c.name(),
             "] expected at least one element along dimension ", d,
             ", from which its padding is copied, got shape ", c.shape(0));
    MX_CHECK(!__builtin_add_overflow(shape[d], before, &shape[d]) &&
                 !__builtin_add_overflow(shape[d], after, &shape[d]),
             InvalidArgument, "[", c.name(), "] expected padded sizes below 2^63, got widths ",
             to_string(AttrValue(attrs.widths)));
  }
  if (mode == PadMode::constant) check_fits(attrs.value, c.dtype(0), c.name());
  c.output(shape, c.dtype(0));
}

void run_pad(const KernelArgs& args) {
  const auto& attrs = args.attr<PadAttrs>();
  const PadMode mode = pad_mode(attrs.mode, "pad");
  const Tensor &out = args.out[0], &x = args.in[0];
  Tensor inner = out;
  const auto before = [&](int d) { return attrs.widths[static_cast<size_t>(2 * d)]; };
  for (int d = 0; d < x.rank(); ++d) inner = inner.narrowed(d, before(d), x.shape[d]);
  if (mode == PadMode::constant) {
    detail::fill_tensor(args, out, attrs.value);
    detail::copy_tensor(args, inner, x);
    return;
  }
  detail::copy_tensor(args, inner, x);
  if (out.numel() == 0) return;
  // One dimension after the other: each plane of the border is a copy of a plane that is already filled.
  for (int d = 0; d < x.rank(); ++d) {
    Tensor wide = out;
    for (int later = d + 1; later < x.rank(); ++later)
      wide = wide.narrowed(later, before(later), x.shape[later]);
    const int64_t n = x.shape[d];
    for (int64_t i = 0; i < out.shape[d]; ++i) {
      if (i == before(d)) i += n;
      if (i >= out.shape[d]) break;
      detail::copy_tensor(args, wide.narrowed(d, i, 1),
                          wide.narrowed(d, before(d) + pad_source(i - before(d), n, mode), 1));
    }
  }
}

// tile and repeat

void infer_tile(InferContext& c) {
  const Shape& repeats = c.attr<TileAttrs>().repeats;
  Shape shape = c.shape(0), times = repeats;
  while (shape.rank() < times.rank()) shape.insert(0, 1);
  while (times.rank() < shape.rank()) times.insert(0, 1);
  for (int d = 0; d < shape.rank(); ++d)
    MX_CHECK(times[d] >= 0 && !__builtin_mul_overflow(shape[d], times[d], &shape[d]), InvalidArgument, "[",
             c.name(), "] expected repeats of 0 or more that give sizes below 2^63, got ", repeats, " for ",
             c.shape(0));
  c.output(shape, c.dtype(0));
}

void run_tile(const KernelArgs& args) {
  const Tensor& out = args.out[0];
  if (out.numel() == 0) return;
  Tensor x = args.in[0];
  while (x.rank() < out.rank()) {
    x.shape.insert(0, 1);
    x.strides.insert(0, 0);
  }
  Tensor block = out;
  for (int d = 0; d < out.rank(); ++d) block.shape[d] = x.shape[d];
  detail::copy_tensor(args, block, x);
  // Copies the filled part behind itself, which doubles it until the dimension is full.
  for (int d = out.rank() - 1; d >= 0; --d) {
    int64_t done = block.shape[d];
    while (done < out.shape[d]) {
      const int64_t n = std::min(done, out.shape[d] - done);
      block.shape[d] = out.shape[d];
      detail::copy_tensor(args, block.narrowed(d, done, n), block.narrowed(d, 0, n));
      done += n;
    }
    block.shape[d] = out.shape[d];
  }
}

void infer_repeat(InferContext& c) {
  const auto& attrs = c.attr<RepeatAttrs>();
  const int axis = normalize_axis(attrs.axis, c.shape(0).rank(), c.name());
  MX_CHECK(c.shape(0).rank() < kMaxRank, InvalidArgument, "[", c.name(), "] expected a rank below ", kMaxRank,
           ", got shape ", c.shape(0));
  Shape shape = c.shape(0);
  MX_CHECK(attrs.count >= 0 && !__builtin_mul_overflow(shape[axis], attrs.count, &shape[axis]),
           InvalidArgument, "[", c.name(),
           "] expected a count of 0 or more that gives a size below 2^63, got ", attrs.count);
  c.output(shape, c.dtype(0));
}

void run_repeat(const KernelArgs& args) {
  const auto& attrs = args.attr<RepeatAttrs>();
  Tensor out = args.out[0], x = args.in[0];
  if (out.numel() == 0) return;
  const int axis = normalize_axis(attrs.axis, x.rank(), "repeat");
  out.shape[axis] = x.shape[axis];
  out.shape.insert(axis + 1, attrs.count);
  out.strides.insert(axis + 1, out.strides[axis]);
  out.strides[axis] *= attrs.count;
  x.shape.insert(axis + 1, attrs.count);
  x.strides.insert(axis + 1, 0);
  detail::copy_tensor(args, out, x);
}

// roll

void infer_roll(InferContext& c) {
  const auto& attrs = c.attr<RollAttrs>();
  MX_CHECK(attrs.shifts.rank() == attrs.axes.rank(), InvalidArgument, "[", c.name(),
           "] expected one shift per axis, got ", attrs.shifts, " for axes ", attrs.axes);
  for (int64_t axis : attrs.axes) normalize_axis(axis, c.shape(0).rank(), c.name());
  c.output(c.shape(0), c.dtype(0));
}

void roll_into(const KernelArgs& args, const Tensor& out, const Tensor& x, const Shape& shifts, int d) {
  if (d == x.rank()) return detail::copy_tensor(args, out, x);
  const int64_t n = x.shape[d], shift = shifts[d];
  if (shift == 0) return roll_into(args, out, x, shifts, d + 1);
  roll_into(args, out.narrowed(d, shift, n - shift), x.narrowed(d, 0, n - shift), shifts, d + 1);
  roll_into(args, out.narrowed(d, 0, shift), x.narrowed(d, n - shift, shift), shifts, d + 1);
}

void run_roll(const KernelArgs& args) {
  const auto& attrs = args.attr<RollAttrs>();
  const Tensor& x = args.in[0];
  if (x.numel() == 0) return;
  Shape shifts = Shape::filled(x.rank(), 0);
  for (int i = 0; i < attrs.axes.rank(); ++i) {
    const int axis = normalize_axis(attrs.axes[i], x.rank(), "roll");
    const int64_t n = x.shape[axis];
    shifts[axis] = detail::modulo(shifts[axis] + detail::modulo(attrs.shifts[i], n), n);
  }
  roll_into(args, args.out[0], x, shifts, 0);
}

// Triangles

void infer_triangle(InferContext& c) {
  MX_CHECK(c.shape(0).rank() >= 2, InvalidArgument, "[", c.name(),
           "] expected matrices (rank 2 or more), got shape ", c.shape(0));
  c.output(c.shape(0), c.dtype(0));
}

template <bool kLower>
void run_triangle(const KernelArgs& args) {
  const Tensor &out = args.out[0], &x = args.in[0];
  const int64_t k = args.attr<TriangleAttrs>().k;
  const int64_t rows = x.shape[x.rank() - 2], columns = x.shape.back();
  if (x.numel() == 0) return;
  const int64_t to_step = out.strides.back(), from_step = x.strides.back();
  Shape lines = x.shape;
  Strides to_lines = out.strides, from_lines = x.strides;
  for (auto* each : {&lines, &to_lines, &from_lines}) each->resize(x.rank() - 1);
  const int64_t grain = std::max<int64_t>(1, kernels::kLoopGrain / columns);
  visit_size(out.dtype, [&](auto element) {
    using E = typename decltype(element)::type;
    parallel_for(x.numel() / columns, grain, [&](int64_t begin, int64_t end) {
      for (int64_t line = begin; line < end; ++line) {
        E* const to = out.as<E>() + place_of(line, lines, to_lines);
        const E* const from = x.as<E>() + place_of(line, lines, from_lines);
        // Columns before `border` are on one side of the diagonal.
        const int64_t i = line % rows, last = kLower ? 1 : 0;
        const int64_t border = k >= columns ? columns
                               : k <= -rows ? 0
                                            : std::clamp<int64_t>(i + k + last, 0, columns);
        const int64_t keep = kLower ? 0 : border, stop = kLower ? border : columns;
        const auto fill = [&](int64_t first, int64_t behind) {
          for (int64_t j = first; j < behind; ++j) to[j * to_step] = E(0);
        };
        fill(0, keep);
        if (to_step == 1 && from_step == 1) {
          std::copy(from + keep, from + stop, to + keep);
        } else {
          for (int64_t j = keep; j < stop; ++j) to[j * to_step] = from[j * from_step];
        }
        fill(stop, columns);
      }
    });
  });
}

constexpr Operator kPad = {
    .kernel = {"pad", run_pad, cuda::also(run_pad), kDirectElements},
    .doc = "Array x with a border added, filled with a constant or with elements of x.",
    .family = "shape",
    .inputs = {"x"},
    .attrs = &kAttrType<PadAttrs>,
    .infer = infer_pad,
    .gradient = detail::gradient_pad};
constexpr Operator kTile = {.kernel = {"tile", run_tile, cuda::also(run_tile), kDirectElements},
                            .doc = "Array x repeated as a whole along each dimension.",
                            .family = "shape",
                            .inputs = {"x"},
                            .attrs = &kAttrType<TileAttrs>,
                            .infer = infer_tile,
                            .gradient = detail::gradient_tile};
constexpr Operator kRepeat = {.kernel = {"repeat", run_repeat, cuda::also(run_repeat), kDirectElements},
                              .doc = "Array x with each entry along an axis repeated `count` times.",
                              .family = "shape",
                              .inputs = {"x"},
                              .attrs = &kAttrType<RepeatAttrs>,
                              .infer = infer_repeat,
                              .gradient = detail::gradient_repeat};
constexpr Operator kRoll = {
    .kernel = {"roll", run_roll, cuda::also(run_roll), kDirectElements},
    .doc =
        "Array x with its elements shifted along axes; elements shifted past the end continue at the start.",
    .family = "shape",
    .inputs = {"x"},
    .attrs = &kAttrType<RollAttrs>,
    .infer = infer_roll,
    .gradient = detail::gradient_roll};
constexpr Operator kTril = {
    .kernel = {"tril", run_triangle<true>, cuda::tril, kDirectElements},
    .doc = "Lower triangles of matrices (.., m, n): elements above diagonal k are set to 0.",
    .family = "shape",
    .inputs = {"x"},
    .attrs = &kAttrType<TriangleAttrs>,
    .infer = infer_triangle,
    .gradient = detail::gradient_tril};
constexpr Operator kTriu = {
    .kernel = {"triu", run_triangle<false>, cuda::triu, kDirectElements},
    .doc = "Upper triangles of matrices (.., m, n): elements below diagonal k are set to 0.",
    .family = "shape",
    .inputs = {"x"},
    .attrs = &kAttrType<TriangleAttrs>,
    .infer = infer_triangle,
    .gradient = detail::gradient_triu};

}  // namespace

namespace detail {

PadMode pad_mode(const std::string& text, const char* op) {
  for (const PadMode mode :
       {PadMode::constant, PadMode::edge, PadMode::reflect, PadMode::symmetric, PadMode::wrap})
    if (text == to_string(mode)) return mode;
  throw InvalidArgument(
      concat("[", op, "] expected mode constant, edge, reflect, symmetric or wrap, got \"", text, "\""));
}

int64_t pad_source(int64_t i, int64_t n, PadMode mode) {
  switch (mode) {
    case PadMode::reflect: {
      if (n == 1) return 0;
      const int64_t k = modulo(i, 2 * (n - 1));
      return k < n ? k : 2 * (n - 1) - k;
    }
    case PadMode::symmetric: {
      const int64_t k = modulo(i, 2 * n);
      return k < n ? k : 2 * n - 1 - k;
    }
    case PadMode::wrap:
      return modulo(i, n);
    default:
      return std::clamp<int64_t>(i, 0, n - 1);
  }
}

int64_t modulo(int64_t a, int64_t n) {
  const int64_t rest = a % n;
  return rest < 0 ? rest + n : rest;
}

OperatorFamily family_fill_ops() { return {&kPad, &kTile, &kRepeat, &kRoll, &kTril, &kTriu}; }

}  // namespace detail

std::string to_string(PadMode mode) {
  switch (mode) {
    case PadMode::constant:
      return "constant";
    case PadMode::edge:
      return "edge";
    case PadMode::reflect:
      return "reflect";
    case PadMode::symmetric:
      return "symmetric";
    case PadMode::wrap:
      break;
  }
  return "wrap";
}

NDArray pad(const Arg& x, const std::vector<int64_t>& widths, PadMode mode, Scalar value) {
  return call(kPad, PadAttrs{widths, to_string(mode), value}, x);
}

NDArray pad(const Arg& x, std::initializer_list<std::pair<IntArg, IntArg>> widths, PadMode mode,
            Scalar value) {
  std::vector<int64_t> flat;
  for (const auto& [before, after] : widths) {
    flat.push_back(before);
    flat.push_back(after);
  }
  return pad(x, flat, mode, value);
}

NDArray tile(const Arg& x, const Shape& repeats) { return call(kTile, TileAttrs{repeats}, x); }

NDArray repeat(const Arg& x, int64_t count, IntArg axis) {
  return call(kRepeat, RepeatAttrs{count, axis}, x);
}

NDArray roll(const Arg& x, const Shape& shifts, const Shape& axes) try {
  if (!axes.empty()) return call(kRoll, RollAttrs{shifts, axes}, x);
  MX_CHECK(shifts.rank() == 1, InvalidArgument, "[roll] expected a single shift if no axes are given, got ",
           shifts);
  const NDArray flat = x.array.flatten();
  return call(kRoll, RollAttrs{shifts, {0}}, {flat, x.where}).reshape(x.array.shape());
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

NDArray tril(const Arg& x, IntArg k) { return call(kTril, TriangleAttrs{k}, x); }
NDArray triu(const Arg& x, IntArg k) { return call(kTriu, TriangleAttrs{k}, x); }

}  // namespace mx
