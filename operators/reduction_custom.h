// A new reduction from a struct that accumulates one element after the other, in one file:
//
//   template <class T>
//   struct SumOfSquares {
//     T total = 0;
//     void add(T x) { total += x * x; }
//     void join(const SumOfSquares& other) { total += other.total; }
//     T result(int64_t) const { return total; }
//   };
//   const Operator& record() {
//     static const Operator op = reduction_operator<SumOfSquares>("sum_of_squares", "The sum of squares.");
//     return op;
//   }
//   NDArray sum_of_squares(const Arg& x, const Axes& axes = {}, bool keep_dims = false) {
//     return call(record(), ReduceAttrs{axes, keep_dims}, x);
//   }
//
// In this source tree, also define detail::OperatorFamily family_sum_of_squares() and add a line to
// operators/CMakeLists.txt; elsewhere call register_operator(record()). The record provides axes and
// keep_dims as in sum(), shape and type inference, every layout, all element types, parallel loops, samples,
// and the tests and documents that are generated from the registry.
//
// The struct is the state of one result, for T = float and double. f64, integers and bool are computed in
// double; f32, f16 and bf16 in float.
//   State()           the state of no elements
//   add(x)            accumulates one element
//   join(other)       accumulates the elements of another state
//   result(count)     returns the result of `count` elements. If it returns T, the result has the type of the
//                     input, or f32 for integers; if it returns bool or int64_t, the result is bool or i64.
//   kNeedsElements    optional `static constexpr bool`; if true, a call that reduces no elements throws
// The order in which elements are accumulated depends on shape and layout, never on the number of threads.
// Elements are accumulated in runs, and the results of runs are joined, mostly as a tree. So the error of a
// sum grows much more slowly than with the number of elements.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "ndarray/kernels/parallel.h"
#include "operators/kernels/reduce_plan.h"
#include "operators/kernels/row_convert.h"
#include "operators/reduce.h"

namespace mx {

namespace detail {

/// A run of elements is accumulated in kFoldLanes independent states. A tile is a group of adjacent outputs
/// that one task computes together. A task accumulates about kFoldTask elements.
inline constexpr int64_t kFoldRun = 256, kFoldLanes = 8, kFoldTile = 64, kFoldTask = 16384;

/// Joins states pairwise: the first with the second, the third with the fourth, then these pairs, and so on.
template <class State>
void join_pairs(State* states, int64_t n, int64_t stride = 1) {
  for (int64_t step = 1; step < n; step *= 2)
    for (int64_t i = 0; i + step < n; i += 2 * step) states[i * stride].join(states[(i + step) * stride]);
}

/// Returns the state of `n` contiguous elements. Precondition: n <= kFoldRun.
template <class State, class T>
State fold_run(const T* x, int64_t n) {
  State states[kFoldLanes];
  int64_t i = 0;
  for (; i + kFoldLanes <= n; i += kFoldLanes)
    for (int64_t lane = 0; lane < kFoldLanes; ++lane) states[lane].add(x[i + lane]);
  for (int64_t lane = 0; i < n; ++i, ++lane) states[lane].add(x[i]);
  join_pairs(states, std::min(n, kFoldLanes));
  return states[0];
}

/// The division of one call into tasks: each line of adjacent outputs is split into tiles, and the elements
/// of an output into `blocks`.
struct FoldJob {
  FoldJob(const Tensor& in, const Tensor& out, const Shape& axes);

  const Tensor& in;
  const Tensor& out;
  kernels::ReducePlan plan;
  /// True if a tile is read row by row, because neighbouring outputs are closer in memory than the elements
  /// of one output.
  bool columns;
  int64_t width, tiles_per_line, tiles, block, blocks;

  int64_t first_output(int64_t tile) const {
    return tile / tiles_per_line * plan.kept.shape[0] + tile % tiles_per_line * kFoldTile;
  }
  int64_t outputs(int64_t tile) const {
    return std::min(kFoldTile, plan.kept.shape[0] - tile % tiles_per_line * kFoldTile);
  }
};

template <class T>
const T* run_of(const Tensor& x, int64_t first, int64_t stride, int64_t n, T* buffer) {
  if (x.dtype == dtype_of<T> && stride == 1) return x.as<const T>() + first;
  kernels::load_run(buffer, x.data, x.dtype, first, stride, n);
  return buffer;
}

/// Returns the state of the elements [begin, end), at most kFoldTask, of the output whose first element is at
/// `base`.
template <class State, class T>
State fold_elements(const FoldJob& job, int64_t base, int64_t begin, int64_t end) {
  const kernels::WalkedDims& walked = job.plan.reduced;
  const int64_t line = walked.shape[0], stride = walked.in[0];
  State states[kFoldTask / kFoldRun];
  T buffer[kFoldRun];
  int64_t runs = 0;
  for (int64_t at = begin; at < end; at += kFoldRun, ++runs) {
    const int64_t n = std::min(kFoldRun, end - at);
    if (at % line + n <= line) {
      states[runs] = fold_run<State>(run_of<T>(job.in, base + walked.in_offset(at), stride, n, buffer), n);
      continue;
    }
    for (int64_t done = 0; done < n;) {
      const int64_t here = std::min(n - done, line - (at + done) % line);
      kernels::load_run(buffer + done, job.in.data, job.in.dtype, base + walked.in_offset(at + done), stride,
                        here);
      done += here;
    }
    states[runs] = fold_run<State>(buffer, n);
  }
  join_pairs(states, runs);
  return states[0];
}

/// Accumulates the elements [begin, end) of each output of a tile, row by row, in runs of kFoldRun rows.
template <class State, class T>
void fold_columns(const FoldJob& job, int64_t base, int64_t n, int64_t begin, int64_t end, State* states) {
  const int64_t stride = job.plan.kept.in[0];
  T buffer[kFoldTile];
  for (int64_t at = begin; at < end; at += kFoldRun) {
    State run[kFoldTile];
    for (int64_t row = at; row < std::min(end, at + kFoldRun); ++row) {
      const T* const x = run_of<T>(job.in, base + job.plan.reduced.in_offset(row), stride, n, buffer);
      for (int64_t i = 0; i < n; ++i) run[i].add(x[i]);
    }
    for (int64_t i = 0; i < n; ++i) states[i].join(run[i]);
  }
}

template <class State, class T>
void fold_tile(const FoldJob& job, int64_t tile, int64_t block, State* states) {
  const int64_t n = job.outputs(tile), begin = block * job.block,
                end = std::min(begin + job.block, job.plan.reduced_count);
  const int64_t base = job.plan.in_offset + job.plan.kept.in_offset(job.first_output(tile));
  if (job.columns) return fold_columns<State, T>(job, base, n, begin, end, states);
  for (int64_t i = 0; i < n; ++i)
    if (begin < end) states[i] = fold_elements<State, T>(job, base + i * job.plan.kept.in[0], begin, end);
}

template <class State, class T>
void store_tile(const FoldJob& job, int64_t tile, const State* states) {
  using Result = decltype(states->result(int64_t{0}));
  const int64_t n = job.outputs(tile), stride = job.plan.kept.out[0];
  const int64_t first = job.plan.out_offset + job.plan.kept.out_offset(job.first_output(tile));
  if constexpr (std::same_as<Result, bool> || std::same_as<Result, int64_t>) {
    for (int64_t i = 0; i < n; ++i)
      job.out.as<Result>()[first + i * stride] = states[i].result(job.plan.reduced_count);
  } else {
    T results[kFoldTile];
    for (int64_t i = 0; i < n; ++i) results[i] = states[i].result(job.plan.reduced_count);
    kernels::store_run(job.out.data, job.out.dtype, first, stride, results, n);
  }
}

template <class State, class T>
void run_fold(const Tensor& out, const Tensor& in, const Shape& axes) {
  const FoldJob job(in, out, axes);
  if (out.numel() == 0) return;
  if (job.blocks == 1) {
    const int64_t work = job.width * std::max<int64_t>(1, job.plan.reduced_count);
    parallel_for(job.tiles, std::max<int64_t>(1, kFoldTask / work), [&](int64_t begin, int64_t end) {
      for (int64_t tile = begin; tile < end; ++tile) {
        State states[kFoldTile];
        fold_tile<State, T>(job, tile, 0, states);
        store_tile<State, T>(job, tile, states);
      }
    });
    return;
  }
  std::vector<State> partial(static_cast<size_t>(job.tiles * job.blocks * job.width));
  const auto states = [&](int64_t tile, int64_t block) {
    return partial.data() + (tile * job.blocks + block) * job.width;
  };
  parallel_for(job.tiles * job.blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t tile = task / job.blocks, block = task % job.blocks;
      fold_tile<State, T>(job, tile, block, states(tile, block));
    }
  });
  for (int64_t tile = 0; tile < job.tiles; ++tile) {
    for (int64_t i = 0; i < job.outputs(tile); ++i) join_pairs(states(tile, 0) + i, job.blocks, job.width);
    store_tile<State, T>(job, tile, states(tile, 0));
  }
}

template <template <class> class State>
void reduction_kernel(const KernelArgs& args) {
  const Tensor &in = args.in[0], &out = args.out[0];
  const Shape axes = args.attr<ReduceAttrs>().axes;
  if (is_floating(in.dtype) && in.dtype != f64) {
    run_fold<State<float>, float>(out, in, axes);
  } else {
    run_fold<State<double>, double>(out, in, axes);
  }
}

template <class State>
constexpr bool needs_elements() {
  if constexpr (requires { State::kNeedsElements; }) return State::kNeedsElements;
  return false;
}

/// The kind of the result's type: derived from the elements' type, bool, or i64.
enum class ReductionResult { number, boolean, integer };

template <class State>
constexpr ReductionResult reduction_result() {
  using Result = decltype(std::declval<const State&>().result(int64_t{0}));
  if (std::same_as<Result, bool>) return ReductionResult::boolean;
  return std::same_as<Result, int64_t> ? ReductionResult::integer : ReductionResult::number;
}

void infer_reduction(InferContext& c, ReductionResult result, bool choosing);
/// Sets the gradient of the input to the head times derivative(x, y); y and the head have size 1 in the
/// reduced dimensions.
void set_reduced(GradientContext& g, NDArray (*derivative)(const NDArray& x, const NDArray& y));
std::vector<Sample> reduction_samples();

template <class State, class T>
concept Reduction = std::default_initializable<State> &&
    requires(State s, const State& other, T x, int64_t n) {
  s.add(x);
  s.join(other);
  other.result(n);
};

}  // namespace detail

/// Returns the record of a reduction. `name` and `doc` must live as long as the record.
template <template <class> class State>
Operator reduction_operator(const char* name, const char* doc) {
  static_assert(detail::Reduction<State<float>, float> && detail::Reduction<State<double>, double>,
                "expected a struct with add(T), join(const State&) and T result(int64_t) const");
  Operator op;
  op.kernel = {name, detail::reduction_kernel<State>};
  op.kernel.direct_work = 256;  // the functions may be slow
  op.doc = doc;
  op.family = "reduction";
  op.inputs = {"x"};
  op.attrs = &kAttrType<ReduceAttrs>;
  op.infer = [](InferContext& c) {
    detail::infer_reduction(c, detail::reduction_result<State<float>>(),
                            detail::needs_elements<State<float>>());
  };
  op.samples = detail::reduction_samples;
  op.dtypes = {kAllDTypes, kAllDTypes + kDTypes};
  return op;
}

/// The same with the derivative of the result y with respect to an element x. It is a lambda without captures
/// that calls operators, so that derivatives of every order exist. y broadcasts against x:
///   reduction_operator<SumOfSquares>("sum_of_squares", "The sum of squares.",
///                                    [](const NDArray& x, const NDArray&) { return x * 2; })
template <template <class> class State, class D>
Operator reduction_operator(const char* name, const char* doc, D) {
  static_assert(std::is_invocable_r_v<NDArray, D, const NDArray&, const NDArray&>,
                "expected NDArray derivative(const NDArray& x, const NDArray& y)");
  Operator op = reduction_operator<State>(name, doc);
  op.gradient = [](GradientContext& g) {
    detail::set_reduced(g, [](const NDArray& x, const NDArray& y) -> NDArray { return D{}(x, y); });
  };
  op.gradient_uses = {.inputs = bit_set(0), .outputs = bit_set(0)};
  return op;
}

}  // namespace mx
