// Reductions: any set of axes, any strides, any types.
//
// A group of threads folds the elements of one result, or a part of them if there are few results. The parts
// are then combined in their order. How many there are, and which thread folds which elements, depends on
// shape and strides only, so results repeat bit for bit.
#include <algorithm>
#include <cmath>
#include <optional>

#include "operators/cuda/group.cuh"
#include "operators/cuda_kernels.h"
#include "operators/kernels/reduce.h"
#include "operators/kernels/reduce_plan.h"
#include "operators/reduce.h"
#include "operators/scratch.h"

namespace mx::cuda {
namespace {

using kernels::ReduceOp;
using kernels::ReducePlan;

template <class A>
constexpr bool kInteger = static_cast<A>(0.5) == 0;

// Integers wrap.
template <class A>
__device__ A plus(A a, A b) {
  if constexpr (kInteger<A>)
    return static_cast<A>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  else
    return a + b;
}
template <class A>
__device__ A times(A a, A b) {
  if constexpr (kInteger<A>)
    return static_cast<A>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  else
    return a * b;
}
template <class A>
__device__ A magnitude(A x) {
  return x < 0 ? times(x, A(-1)) : x == 0 ? A(0) : x;
}
/// The number that is less than all others.
template <class A>
__device__ A least() {
  if constexpr (kInteger<A>)
    return INT64_MIN;
  else
    return static_cast<A>(-INFINITY);
}
template <class A>
__device__ A greatest() {
  if constexpr (kInteger<A>)
    return INT64_MAX;
  else
    return static_cast<A>(INFINITY);
}

enum class Value : uint8_t { sum, squares, powers, prod, max, min, max_abs, min_abs };

// A fold has a state; add() takes in an element, and combine() joins two states.

template <class A>
struct ValueFold {
  using Element = A;
  using State = A;
  Value kind;
  double power;
  __device__ State start() const {
    switch (kind) {
      case Value::prod:
        return A(1);
      case Value::max:
        return least<A>();
      case Value::min:
      case Value::min_abs:
        return greatest<A>();
      default:
        return A(0);
    }
  }
  __device__ State add(State s, A x, int64_t) const {
    if (kind == Value::sum) return plus(s, x);
    if (kind == Value::squares) return plus(s, times(x, x));
    if (kind == Value::max_abs || kind == Value::min_abs || kind == Value::powers) x = magnitude(x);
    if constexpr (!kInteger<A>)
      if (kind == Value::powers) return s + (power == 1 ? x : static_cast<A>(pow(x, static_cast<A>(power))));
    return combine(s, x);
  }
  __device__ State combine(State a, State b) const {
    switch (kind) {
      case Value::prod:
        return times(a, b);
      case Value::max:
      case Value::max_abs:
        return a != a || a >= b ? a : b;
      case Value::min:
      case Value::min_abs:
        return a != a || a <= b ? a : b;
      default:
        return plus(a, b);
    }
  }
  __device__ A value(State s) const { return s; }
};

template <class A>
struct CountFold {
  using Element = A;
  using State = int64_t;
  __device__ State start() const { return 0; }
  __device__ State add(State s, A x, int64_t) const { return s + (x != A(0)); }
  __device__ State combine(State a, State b) const { return a + b; }
  __device__ int64_t value(State s) const { return s; }
};

template <class A>
struct IndexFold {
  using Element = A;
  struct State {
    A x;
    int64_t index;  // -1: no element yet
    __device__ State exchanged(int distance) const {
      return {shuffle_xor(x, distance), shuffle_xor(index, distance)};
    }
  };
  bool largest;
  __device__ State start() const { return {A(0), -1}; }
  __device__ State add(State s, A x, int64_t index) const { return combine(s, {x, index}); }
  // Of equal elements the first; a NaN is before all others.
  __device__ State combine(State a, State b) const {
    if (a.index < 0) return b;
    if (b.index < 0) return a;
    const bool a_nan = a.x != a.x, b_nan = b.x != b.x;
    if (a_nan != b_nan) return a_nan ? a : b;
    if (!a_nan && a.x != b.x) return (a.x > b.x) == largest ? a : b;
    return a.index < b.index ? a : b;
  }
  __device__ int64_t value(State s) const { return s.index; }
};

template <class A>
struct LogSumFold {
  using Element = A;
  struct State {
    A top, sum;  // the sum of exp(x - top)
    __device__ State exchanged(int distance) const {
      return {shuffle_xor(top, distance), shuffle_xor(sum, distance)};
    }
  };
  __device__ State start() const { return {least<A>(), A(0)}; }
  __device__ State add(State s, A x, int64_t) const { return combine(s, {x, A(1)}); }
  __device__ State combine(State a, State b) const {
    if (a.top != a.top) return a;
    if (b.top != b.top) return b;
    const A top = a.top > b.top ? a.top : b.top;
    if (isinf(top)) return {top, A(0)};
    return {top, a.sum * exp(a.top - top) + b.sum * exp(b.top - top)};
  }
  __device__ A value(State s) const { return isfinite(s.top) ? s.top + log(s.sum) : s.top; }
};

template <class A>
struct MomentsFold {
  using Element = A;
  struct State {
    A mean, squares;  // the sum of squared distances from the mean
    int64_t count;
    __device__ State exchanged(int distance) const {
      return {shuffle_xor(mean, distance), shuffle_xor(squares, distance), shuffle_xor(count, distance)};
    }
  };
  double divisor;
  bool root;
  __device__ State start() const { return {A(0), A(0), 0}; }
  __device__ State add(State s, A x, int64_t) const {
    const A distance = x - s.mean;
    const A mean = s.mean + distance / static_cast<A>(s.count + 1);
    return {mean, s.squares + distance * (x - mean), s.count + 1};
  }
  // Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances",
  // 1979.
  __device__ State combine(State a, State b) const {
    if (b.count == 0) return a;
    if (a.count == 0) return b;
    const A n = static_cast<A>(a.count + b.count), share = static_cast<A>(b.count) / n;
    const A distance = b.mean - a.mean;
    return {a.mean + distance * share,
            a.squares + b.squares + distance * distance * share * static_cast<A>(a.count), a.count + b.count};
  }
  __device__ double value(State s) const {
    const double variance = static_cast<double>(s.squares) / divisor;
    return root ? sqrt(variance) : variance;
  }
};

enum class Finish : uint8_t { value, divide, root, any, all };

/// What becomes of the value of a fold.
struct Last {
  Finish kind = Finish::value;
  int64_t count = 0;
  double inverse_power = 1;

  template <class T>
  __device__ void store_value(const Elements& out, int64_t at, T value) const {
    switch (kind) {
      case Finish::divide:
        if constexpr (kInteger<T>)
          store(out, at, static_cast<double>(value) / static_cast<double>(count));
        else
          store(out, at, value / static_cast<T>(count));
        return;
      case Finish::root:
        if constexpr (!kInteger<T>)
          store(
              out, at,
              inverse_power == 0.5 ? sqrt(value) : static_cast<T>(pow(value, static_cast<T>(inverse_power))));
        return;
      case Finish::any:
        return store(out, at, int64_t{value != T(0)});
      case Finish::all:
        return store(out, at, int64_t{value == static_cast<T>(count)});
      case Finish::value:
        break;
    }
    store(out, at, value);
  }
};

struct Work {
  Elements in, out;
  Dims<2> kept;
  Dims<1> reduced;
  int64_t in_offset, out_offset;
  int64_t outputs, count;
  int64_t parts, part;  // of the elements of one result, and the elements of each
  int64_t low, high;    // of the integer type to which elements are converted first
};

template <class F, int kLanes>
__global__ void __launch_bounds__(kBlock)
    fold_parts(F fold, Work work, Last last, typename F::State* partial) {
  using G = Group<kLanes>;
  using A = typename F::Element;
  const int64_t group = G::row();
  if (group >= work.outputs * work.parts) return;
  // Neighbouring groups have neighbouring results.
  const int64_t output = group % work.outputs, part = group / work.outputs;
  const int64_t base = work.in_offset + work.kept.offset(0, output);
  const int64_t begin = part * work.part,
                end = begin + work.part < work.count ? begin + work.part : work.count;
  const auto element = [&](int64_t i) {
    A x = load<A>(work.in, base + work.reduced.offset(0, i));
    if constexpr (kInteger<A>) x = x < work.low ? work.low : x > work.high ? work.high : x;
    return x;
  };
  typename F::State state = fold.start();
  constexpr int64_t kStep = kLanes, kTogether = 4;
  int64_t i = begin + G::lane();
  for (; i + (kTogether - 1) * kStep < end; i += kTogether * kStep) {
    A x[kTogether];
    for (int k = 0; k < kTogether; ++k) x[k] = element(i + k * kStep);
    for (int k = 0; k < kTogether; ++k) state = fold.add(state, x[k], i + k * kStep);
  }
  for (; i < end; i += kStep) state = fold.add(state, element(i), i);
  state = G::all(state, [&](auto a, auto b) { return fold.combine(a, b); });
  if (G::lane() != 0) return;
  if (work.parts > 1)
    partial[part * work.outputs + output] = state;
  else
    last.store_value(work.out, work.out_offset + work.kept.offset(1, output), fold.value(state));
}

template <class F>
__global__ void __launch_bounds__(kBlock)
    join_parts(F fold, Work work, Last last, const typename F::State* partial) {
  const int64_t output = global_index();
  if (output >= work.outputs) return;
  typename F::State state = partial[output];
  for (int64_t part = 1; part < work.parts; ++part)
    state = fold.combine(state, partial[part * work.outputs + output]);
  last.store_value(work.out, work.out_offset + work.kept.offset(1, output), fold.value(state));
}

template <int N>
Dims<N> dims_from(const kernels::WalkedDims& walked, bool with_out) {
  Dims<N> dims;
  dims.rank = walked.rank;
  for (int d = 0; d < walked.rank; ++d) {
    dims.shape[d] = walked.shape[d];
    dims.strides[0][d] = walked.in[d];
    if (with_out) dims.strides[N - 1][d] = walked.out[d];
  }
  return dims;
}

/// Returns the number of parts: enough threads for a GPU, each with some elements.
int64_t parts_for(int64_t outputs, int64_t count, int lanes) {
  constexpr int64_t kThreads = int64_t{1} << 18, kElements = 16, kMost = 512;
  const int64_t threads = outputs * lanes;
  return std::clamp<int64_t>(std::min(kThreads / threads, count / (lanes * kElements)), 1, kMost);
}

template <class F>
void start(const KernelArgs& args, const F& fold, const ReducePlan& plan, const Last& last,
           std::optional<DType> narrow = {}) {
  const Tensor &in = args.in[0], &out = args.out[0];
  Work work{elements_of(in),
            elements_of(out),
            dims_from<2>(plan.kept, true),
            dims_from<1>(plan.reduced, false),
            plan.in_offset,
            plan.out_offset,
            plan.kept_count,
            plan.reduced_count,
            1,
            plan.reduced_count,
            INT64_MIN,
            INT64_MAX};
  if (narrow && is_integral(*narrow) && is_floating(in.dtype))
    visit(*narrow, [&](auto tag) {
      using T = typename decltype(tag)::type;
      if constexpr (std::is_integral_v<T>) {
        work.low = static_cast<int64_t>(std::numeric_limits<T>::min());
        work.high = static_cast<int64_t>(std::numeric_limits<T>::max());
      }
    });
  const int lanes = plan.by_columns() ? 1 : lanes_for(0, plan.reduced_count, true);
  work.parts = parts_for(work.outputs, work.count, lanes);
  work.part = (work.count + work.parts - 1) / work.parts;
  if (work.part > 0) work.parts = (work.count + work.part - 1) / work.part;
  work.parts = std::max<int64_t>(work.parts, 1);
  using State = typename F::State;
  const Scratch partial(args,
                        work.parts > 1 ? static_cast<size_t>(work.parts * work.outputs) * sizeof(State) : 0);
  visit_lanes(lanes, work.outputs * work.parts, [&]<int kLanes>(unsigned blocks) {
    launch(stream_of(args), blocks, kBlock, 0, fold_parts<F, kLanes>, fold, work, last, partial.as<State>());
  });
  if (work.parts > 1)
    launch(stream_of(args), whole_grid(work.outputs, kBlock), kBlock, 0, join_parts<F>, fold, work, last,
           static_cast<const State*>(partial.as<State>()));
}

ReducePlan plan_of(const KernelArgs& args, const Shape& axes, const char* op, bool ordered = false) {
  return {args.in[0], args.out[0], normalize_axes(axes, args.in[0].rank(), op), ordered};
}

/// Calls f.operator()<A>() with the type in which elements of `type` are folded.
template <class F>
void visit_folded(DType type, const F& f) {
  if (!is_floating(type)) return f.template operator()<int64_t>();
  visit_real(type, f);
}

void values(const KernelArgs& args, const char* op, const Shape& axes, Value kind,
            Finish finish = Finish::value, std::optional<DType> converted = {}) {
  const ReducePlan plan = plan_of(args, axes, op);
  if (plan.kept_count == 0) return;
  const DType in = args.in[0].dtype;
  // The mean of integers is computed from the integers: in double if a sum of i64 might wrap.
  const bool mean = finish == Finish::divide;
  DType type = mean && !is_floating(in) ? (in == i64 ? f64 : in) : converted.value_or(in);
  visit_folded(type, [&]<class A>() {
    start(args, ValueFold<A>{kind, 1}, plan, {finish, plan.reduced_count}, converted);
  });
}

void counts(const KernelArgs& args, const char* op, Finish finish) {
  const ReducePlan plan = plan_of(args, args.attr<ReduceAttrs>().axes, op);
  if (plan.kept_count == 0) return;
  visit_folded(args.in[0].dtype, [&]<class A>() {
    start(args, CountFold<A>{}, plan, {finish, plan.reduced_count});
  });
}

void indices(const KernelArgs& args, const char* op, bool largest) {
  const ReducePlan plan = plan_of(args, args.attr<ReduceAttrs>().axes, op, /*ordered=*/true);
  if (plan.kept_count == 0) return;
  visit_folded(args.in[0].dtype, [&]<class A>() { start(args, IndexFold<A>{largest}, plan, {}); });
}

void variances(const KernelArgs& args, const char* op, bool root) {
  const auto& attrs = args.attr<VarianceAttrs>();
  const ReducePlan plan = plan_of(args, attrs.axes, op);
  if (plan.kept_count == 0) return;
  const double divisor = std::max(0.0, static_cast<double>(plan.reduced_count) - attrs.correction);
  const DType in = args.in[0].dtype;
  visit_real(is_floating(in) ? in : f64, [&]<class A>() {
    start(args, MomentsFold<A>{divisor, root}, plan, {});
  });
}

void totals(const KernelArgs& args, const char* op, Value kind, Finish finish) {
  const auto& attrs = args.attr<TotalAttrs>();
  values(args, op, attrs.axes, kind, finish, attrs.dtype);
}

void extremes(const KernelArgs& args, const char* op, Value kind) {
  values(args, op, args.attr<ReduceAttrs>().axes, kind);
}

}  // namespace

void sum(const KernelArgs& args) { totals(args, "sum", Value::sum, Finish::value); }
void prod(const KernelArgs& args) { totals(args, "prod", Value::prod, Finish::value); }
void mean(const KernelArgs& args) { totals(args, "mean", Value::sum, Finish::divide); }
void max(const KernelArgs& args) { extremes(args, "max", Value::max); }
void min(const KernelArgs& args) { extremes(args, "min", Value::min); }
void argmax(const KernelArgs& args) { indices(args, "argmax", true); }
void argmin(const KernelArgs& args) { indices(args, "argmin", false); }
void any(const KernelArgs& args) { counts(args, "any", Finish::any); }
void all(const KernelArgs& args) { counts(args, "all", Finish::all); }
void count_nonzero(const KernelArgs& args) { counts(args, "count_nonzero", Finish::value); }
void var(const KernelArgs& args) { variances(args, "var", false); }
void stddev(const KernelArgs& args) { variances(args, "stddev", true); }

void logsumexp(const KernelArgs& args) {
  const ReducePlan plan = plan_of(args, args.attr<ReduceAttrs>().axes, "logsumexp");
  if (plan.kept_count == 0) return;
  const DType in = args.in[0].dtype;
  visit_real(is_floating(in) ? in : f64, [&]<class A>() { start(args, LogSumFold<A>{}, plan, {}); });
}

void norm(const KernelArgs& args) {
  const auto& attrs = args.attr<NormAttrs>();
  const ReducePlan plan = plan_of(args, attrs.axes, "norm");
  if (plan.kept_count == 0) return;
  const DType in = args.in[0].dtype;
  const double p = attrs.p;
  if (p == 0) return visit_folded(in, [&]<class A>() { start(args, CountFold<A>{}, plan, {}); });
  visit_real(is_floating(in) ? in : f64, [&]<class A>() {
    if (std::isinf(p)) return start(args, ValueFold<A>{p > 0 ? Value::max_abs : Value::min_abs, 1}, plan, {});
    const Last last{p == 1 ? Finish::value : Finish::root, 0, 1 / p};
    start(args, ValueFold<A>{p == 2 ? Value::squares : Value::powers, p}, plan, last);
  });
}

}  // namespace mx::cuda
