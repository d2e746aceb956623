#include "operators/kernels/reduce.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/kernels/convert.h"
#include "ndarray/kernels/copy.h"
#include "ndarray/kernels/parallel.h"
#include "operators/kernels/reduce_fold.h"
#include "operators/kernels/reduce_plan.h"
#include "operators/kernels/row_convert.h"

namespace mx::kernels {
namespace {

using detail::ColumnStates;
using detail::Fold;
using detail::FoldState;
using detail::kFoldElements;
using detail::kFoldRows;

constexpr const char* kReduceNames[] = {
    "sum", "prod",          "mean",        "max",     "min",     "argmax",    "argmin", "any",
    "all", "count_nonzero", "sum_squares", "sum_abs", "max_abs", "logsumexp", "var",    "std"};

// Elements that one task folds: a power of two times a piece, so that the tree over the pieces is the same
// whether or not it is split into tasks.
constexpr int64_t kTaskElements = 65536;
// Columns that are folded together, few enough for their states to stay in the first-level cache.
constexpr int64_t kTaskColumns = 1024;

Fold fold_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::mean:
      return Fold::sum;
    case ReduceOp::prod:
      return Fold::prod;
    case ReduceOp::max:
      return Fold::max;
    case ReduceOp::min:
      return Fold::min;
    case ReduceOp::argmax:
      return Fold::argmax;
    case ReduceOp::argmin:
      return Fold::argmin;
    case ReduceOp::any:
    case ReduceOp::all:
    case ReduceOp::count_nonzero:
      return Fold::count_nonzero;
    case ReduceOp::sum_squares:
      return Fold::sum_squares;
    case ReduceOp::sum_abs:
      return Fold::sum_abs;
    case ReduceOp::max_abs:
      return Fold::max_abs;
    case ReduceOp::logsumexp:
      return Fold::logsumexp;
    case ReduceOp::var:
    case ReduceOp::std:
      break;
  }
  return Fold::moments;
}

/// The reduction of one call, and the conversion of its states to elements of the result.
struct Job {
  ReduceOp op;
  Fold fold;
  double correction;
  ReducePlan plan;
  const Tensor* in;
  void* out;
  DType out_type;
};

/// Returns the state of a reduction over no elements.
template <class A>
FoldState<A> nothing(Fold fold) {
  if (fold == Fold::prod) return {A{1}, 0, 0};
  if constexpr (std::is_floating_point_v<A>) {
    if (fold == Fold::logsumexp) return {-std::numeric_limits<A>::infinity(), 0, 0};
    if (fold == Fold::moments) return {0, 0, 0};
  }
  return {0, 0, 0};
}

/// Combines all n states into states[0]: first neighbours, then neighbouring pairs, and so on.
template <class A>
void join_tree(Fold fold, FoldState<A>* states, int64_t n) {
  for (int64_t step = 1; step < n; step *= 2)
    for (int64_t i = 0; i + step < n; i += 2 * step) detail::combine(fold, states[i], states[i + step]);
}

/// Returns the value of a state. Integers must stay exact, so they have a function of their own.
template <class A>
A value_of(const Job& job, const FoldState<A>& s) {
  if constexpr (std::is_floating_point_v<A>) {
    switch (job.op) {
      case ReduceOp::mean:
        return s.a / static_cast<A>(job.plan.reduced_count);
      case ReduceOp::logsumexp:
        return std::isfinite(s.a) ? s.a + std::log(s.b) : s.a;
      case ReduceOp::var:
      case ReduceOp::std: {
        const double divisor = std::max(0.0, static_cast<double>(job.plan.reduced_count) - job.correction);
        const double var = static_cast<double>(s.b) / divisor;
        return static_cast<A>(job.op == ReduceOp::std ? std::sqrt(var) : var);
      }
      default:
        break;
    }
  }
  return s.a;
}

int64_t count_of(const Job& job, int64_t i) {
  if (job.op == ReduceOp::any) return i > 0;
  if (job.op == ReduceOp::all) return i == job.plan.reduced_count;
  return i;
}

/// Writes n results, which are `stride` elements apart in the output.
template <class A>
void store(const Job& job, int64_t first, int64_t stride, const FoldState<A>* states, int64_t n) {
  const bool counts = job.fold == Fold::count_nonzero || job.fold == Fold::argmax || job.fold == Fold::argmin;
  constexpr int64_t kBatch = 64;
  for (int64_t done = 0; done < n; done += kBatch) {
    const int64_t here = std::min(kBatch, n - done);
    if (counts) {
      int64_t values[kBatch];
      for (int64_t i = 0; i < here; ++i) values[i] = count_of(job, states[done + i].i);
      store_run(job.out, job.out_type, first + done * stride, stride, values, here);
    } else if (job.op == ReduceOp::mean && std::is_integral_v<A>) {
      // The sum is exact, so there is only one rounding.
      double values[kBatch];
      for (int64_t i = 0; i < here; ++i)
        values[i] = static_cast<double>(states[done + i].a) / static_cast<double>(job.plan.reduced_count);
      store_run(job.out, job.out_type, first + done * stride, stride, values, here);
    } else {
      A values[kBatch];
      for (int64_t i = 0; i < here; ++i) values[i] = value_of(job, states[done + i]);
      store_run(job.out, job.out_type, first + done * stride, stride, values, here);
    }
  }
}

/// Returns true if elements of the input can be read in place as A.
template <class A>
bool in_place(const Tensor& in) {
  return (std::is_same_v<A, int64_t> && in.dtype == i64) || (std::is_same_v<A, float> && in.dtype == f32) ||
         (std::is_same_v<A, double> && in.dtype == f64);
}

/// Folds the reduced elements [begin, end) of one output: at most kTaskElements, from a multiple of
/// kFoldElements on.
template <class A>
FoldState<A> fold_range(const Job& job, int64_t base, int64_t begin, int64_t end) {
  const ReducePlan& plan = job.plan;
  FoldState<A> states[kTaskElements / kFoldElements];
  const int64_t pieces = (end - begin + kFoldElements - 1) / kFoldElements;
  const int64_t run = plan.reduced.shape[0], stride = plan.reduced.in[0];
  const bool direct = in_place<A>(*job.in) && stride == 1;
  if (direct && plan.reduced.rank == 1) {
    const A* const x = job.in->as<A>() + base + begin;
    const int64_t whole = (end - begin) / kFoldElements;
    detail::fold_rows(job.fold, x, whole, kFoldElements, kFoldElements, begin, kFoldElements, states);
    const int64_t rest = end - begin - whole * kFoldElements;
    if (rest > 0)
      detail::fold_rows(job.fold, x + whole * kFoldElements, 1, 0, rest, begin + whole * kFoldElements, 0,
                        states + whole);
    join_tree(job.fold, states, pieces);
    return states[0];
  }
  alignas(64) A buffer[kFoldElements];
  for (int64_t p = 0; p < pieces; ++p) {
    const int64_t first = begin + p * kFoldElements, n = std::min(kFoldElements, end - first);
    // A piece may span several runs of the innermost reduced dimension.
    const int64_t at = first % run;
    if (direct && at + n <= run) {
      const A* const x = job.in->as<A>() + base + plan.reduced.in_offset(first);
      detail::fold_rows(job.fold, x, 1, 0, n, first, 0, states + p);
      continue;
    }
    for (int64_t done = 0; done < n;) {
      const int64_t here = std::min(n - done, run - (first + done) % run);
      load_run(buffer + done, job.in->data, job.in->dtype, base + plan.reduced.in_offset(first + done),
               stride, here);
      done += here;
    }
    detail::fold_rows(job.fold, buffer, 1, 0, n, first, 0, states + p);
  }
  join_tree(job.fold, states, pieces);
  return states[0];
}

/// Reduces each output by itself, because the reduced elements are close together in memory.
template <class A>
void reduce_rows(const Job& job) {
  const ReducePlan& plan = job.plan;
  const int64_t count = plan.reduced_count, outputs = plan.kept_count;
  if (count > kTaskElements) {
    const int64_t blocks = (count + kTaskElements - 1) / kTaskElements;
    std::vector<FoldState<A>> states(static_cast<size_t>(outputs * blocks));
    parallel_for(outputs * blocks, 1, [&](int64_t task, int64_t) {
      const int64_t begin = task % blocks * kTaskElements;
      states[static_cast<size_t>(task)] =
          fold_range<A>(job, plan.in_offset + plan.kept.in_offset(task / blocks), begin,
                        std::min(begin + kTaskElements, count));
    });
    for (int64_t o = 0; o < outputs; ++o) {
      join_tree(job.fold, &states[static_cast<size_t>(o * blocks)], blocks);
      store(job, plan.out_offset + plan.kept.out_offset(o), 1, &states[static_cast<size_t>(o * blocks)], 1);
    }
    return;
  }
  const bool direct = in_place<A>(*job.in) && plan.reduced.rank == 1 && plan.reduced.in[0] == 1;
  const int64_t run = plan.kept.shape[0];
  parallel_for(outputs, std::max<int64_t>(1, kTaskElements / 2 / count), [&](int64_t begin, int64_t end) {
    constexpr int64_t kBatch = 64;
    FoldState<A> states[kBatch];
    for (int64_t o = begin; o < end;) {
      const int64_t n = std::min({kBatch, end - o, run - o % run});
      const int64_t base = plan.in_offset + plan.kept.in_offset(o);
      if (direct && count <= kFoldElements) {
        detail::fold_rows(job.fold, job.in->as<A>() + base, n, plan.kept.in[0], count, 0, 0, states);
      } else {
        for (int64_t i = 0; i < n; ++i) states[i] = fold_range<A>(job, base + i * plan.kept.in[0], 0, count);
      }
      store(job, plan.out_offset + plan.kept.out_offset(o), plan.kept.out[0], states, n);
      o += n;
    }
  });
}

/// An array of zeros; a small one needs no allocation.
template <class T>
class Zeros {
 public:
  explicit Zeros(int64_t n) {
    if (n > kInline) {
      many_.reset(new T[static_cast<size_t>(n)]());
    } else {
      std::fill_n(few_, n, T());
    }
  }
  T* get() { return many_ != nullptr ? many_.get() : few_; }

 private:
  static constexpr int64_t kInline = 64;
  T few_[kInline];
  std::unique_ptr<T[]> many_;
};

/// States of `columns` columns, for several pieces of rows.
template <class A>
class ColumnBuffer {
 public:
  ColumnBuffer(int64_t sets, int64_t columns)
      : columns_(columns), a_(sets * columns), b_(sets * columns), c_(sets * columns), i_(sets * columns) {}
  ColumnStates<A> operator()(int64_t set, int64_t column = 0) const {
    const int64_t at = set * columns_ + column;
    return {a_.get() + at, b_.get() + at, i_.get() + at, c_.get() + at};
  }

 private:
  int64_t columns_;
  mutable Zeros<A> a_, b_, c_;
  mutable Zeros<int64_t> i_;
};

/// Folds rows [begin, end) of the columns that start at element `base`, into `out`.
template <class A>
void fold_row_range(const Job& job, int64_t base, int64_t columns, int64_t begin, int64_t end,
                    const ColumnStates<A>& out) {
  const ReducePlan& plan = job.plan;
  const int64_t stride = plan.kept.in[0];
  const bool direct = in_place<A>(*job.in) && stride == 1;
  const int64_t pieces = (end - begin + kFoldRows - 1) / kFoldRows;
  const ColumnBuffer<A> states(pieces - 1, columns);
  const auto state = [&](int64_t p) { return p == 0 ? out : states(p - 1); };
  std::unique_ptr<A[]> buffer(direct ? nullptr : new A[static_cast<size_t>(kFoldRows * columns)]);
  const A* rows[kFoldRows];
  for (int64_t p = 0; p < pieces; ++p) {
    const int64_t first = begin + p * kFoldRows, n = std::min(kFoldRows, end - first);
    for (int64_t r = 0; r < n; ++r) {
      const int64_t at = base + plan.reduced.in_offset(first + r);
      if (direct) {
        rows[r] = job.in->as<A>() + at;
      } else {
        A* const row = buffer.get() + r * columns;
        load_run(row, job.in->data, job.in->dtype, at, stride, columns);
        rows[r] = row;
      }
    }
    detail::fold_columns(job.fold, rows, n, columns, first, state(p));
  }
  for (int64_t step = 1; step < pieces; step *= 2)
    for (int64_t p = 0; p + step < pieces; p += 2 * step)
      detail::combine_columns(job.fold, state(p), state(p + step), columns);
}

template <class A>
void store_columns(const Job& job, int64_t first_output, const ColumnStates<A>& s, int64_t columns) {
  constexpr int64_t kBatch = 64;
  FoldState<A> states[kBatch];
  const int64_t to = job.plan.out_offset + job.plan.kept.out_offset(first_output),
                stride = job.plan.kept.out[0];
  for (int64_t done = 0; done < columns; done += kBatch) {
    const int64_t n = std::min(kBatch, columns - done);
    for (int64_t i = 0; i < n; ++i) states[i] = {s.a[done + i], s.b[done + i], s.i[done + i]};
    store(job, to + done * stride, stride, states, n);
  }
}

/// Reduces adjacent outputs together, because they are closer in memory than the reduced elements.
template <class A>
void reduce_columns(const Job& job) {
  const ReducePlan& plan = job.plan;
  const int64_t run = plan.kept.shape[0], lines = plan.kept_count / run;
  const int64_t parts = (run + kTaskColumns - 1) / kTaskColumns, width = std::min(run, kTaskColumns);
  // A task has whole pieces of rows, and a power of two of them.
  int64_t rows_each = kFoldRows;
  while (rows_each * width < kTaskElements) rows_each *= 2;
  const int64_t blocks = (plan.reduced_count + rows_each - 1) / rows_each;
  const auto columns_of = [&](int64_t part) { return std::min(kTaskColumns, run - part * kTaskColumns); };
  const bool one = blocks == 1;
  const ColumnBuffer<A> partial(one ? 0 : blocks, plan.kept_count);
  const int64_t grain =
      std::max<int64_t>(1, kTaskElements / (width * std::min(rows_each, plan.reduced_count)));
  parallel_for(lines * parts * blocks, grain, [&](int64_t begin, int64_t end) {
    const ColumnBuffer<A> own(one ? 1 : 0, width);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t block = task % blocks, part = task / blocks % parts, line = task / blocks / parts;
      const int64_t output = line * run + part * kTaskColumns, columns = columns_of(part);
      const ColumnStates<A> states = one ? own(0) : partial(block, output);
      fold_row_range<A>(job, plan.in_offset + plan.kept.in_offset(output), columns, block * rows_each,
                        std::min((block + 1) * rows_each, plan.reduced_count), states);
      if (one) store_columns(job, output, states, columns);
    }
  });
  if (one) return;
  parallel_for(
      lines * parts, std::max<int64_t>(1, kTaskElements / (width * blocks)), [&](int64_t begin, int64_t end) {
        for (int64_t task = begin; task < end; ++task) {
          const int64_t part = task % parts, output = task / parts * run + part * kTaskColumns,
                        columns = columns_of(part);
          for (int64_t step = 1; step < blocks; step *= 2)
            for (int64_t b = 0; b + step < blocks; b += 2 * step)
              detail::combine_columns(job.fold, partial(b, output), partial(b + step, output), columns);
          store_columns(job, output, partial(0, output), columns);
        }
      });
}

template <class A>
void run(const Job& job) {
  const ReducePlan& plan = job.plan;
  if (plan.reduced_count == 0) {
    const FoldState<A> state = nothing<A>(job.fold);
    for (int64_t o = 0; o < plan.kept_count; ++o)
      store(job, plan.out_offset + plan.kept.out_offset(o), 1, &state, 1);
  } else if (plan.by_columns()) {
    reduce_columns<A>(job);
  } else {
    reduce_rows<A>(job);
  }
}

/// The kept dimensions along which the input has stride 0, so that all results along them are equal. Without
/// this class each of these results would be computed for itself.
class EqualResults {
 public:
  /// Removes these dimensions from both tensors, by giving them size 1. The bits of the other results stay
  /// the same: dimensions of stride 0 are outermost in a ReducePlan.
  EqualResults(Tensor& in, Tensor& out, const Shape& reduced) {
    const bool ones = out.rank() == in.rank();
    int next = 0, dropped = 0;
    for (int i = 0; i < in.rank(); ++i) {
      if (next < reduced.rank() && reduced[next] == i) {
        ++next;
        dropped += ones ? 0 : 1;
      } else if (in.strides[i] == 0 && in.shape[i] > 1) {
        dims_[count_++] = {i - dropped, in.shape[i]};
        in.shape[i] = out.shape[i - dropped] = 1;
      }
    }
  }

  /// Copies the computed results along the removed dimensions.
  void copy_along(Tensor out) const {
    for (int i = 0; i < count_; ++i) {
      const auto [axis, size] = dims_[i];
      Tensor first = out, others = out;
      first.shape[axis] = others.shape[axis] = size - 1;
      first.strides[axis] = 0;
      others.data = element_at(out.data, out.dtype, out.strides[axis]);
      copy(others, first);
      out.shape[axis] = size;
    }
  }

 private:
  struct Dim {
    int axis;  // of the result
    int64_t size;
  };
  Dim dims_[kMaxRank];
  int count_ = 0;
};

/// Reduces in the type that the operator and the input's type ask for.
void run_in_type(const Job& job, DType in, std::optional<DType> wanted) {
  const bool real = job.fold == Fold::logsumexp || job.fold == Fold::moments;
  // A mean of integers is computed from the integers, whatever the result's type: in double if a sum of i64
  // might wrap, from an exact sum for narrower types.
  const bool mean_of_integers = job.op == ReduceOp::mean && !is_floating(in);
  const DType type = mean_of_integers ? in : wanted.value_or(in);
  if (type == f64 || (!is_floating(type) && (real || (mean_of_integers && type == i64)))) {
    run<double>(job);
  } else if (is_floating(type)) {
    run<float>(job);
  } else {
    run<int64_t>(job);
  }
}

bool throws_on_nothing(ReduceOp op) {
  return op == ReduceOp::max || op == ReduceOp::min || op == ReduceOp::argmax || op == ReduceOp::argmin;
}

}  // namespace

const char* to_string(ReduceOp op) { return kReduceNames[static_cast<int>(op)]; }

DType reduce_result(ReduceOp op, DType in) {
  switch (op) {
    case ReduceOp::any:
    case ReduceOp::all:
      return bool_;
    case ReduceOp::argmax:
    case ReduceOp::argmin:
    case ReduceOp::count_nonzero:
      return i64;
    case ReduceOp::max:
    case ReduceOp::min:
      return in;
    case ReduceOp::mean:
    case ReduceOp::logsumexp:
    case ReduceOp::var:
    case ReduceOp::std:
      return is_floating(in) ? in : f32;
    default:
      return is_floating(in) ? in : i64;
  }
}

Shape reduce_shape(ReduceOp op, const Shape& in, const Shape& axes, bool keep_dims) {
  const Shape reduced = normalize_axes(axes, in.rank(), to_string(op));
  Shape result = in;
  for (int i = reduced.rank() - 1; i >= 0; --i) {
    const int axis = static_cast<int>(reduced[i]);
    if (keep_dims) {
      result[axis] = 1;
    } else {
      result.erase(axis);
    }
  }
  return result;
}

void reduce(ReduceOp op, const Tensor& out, const Tensor& in, const Shape& axes,
            const ReduceOptions& options) {
  const Shape dropped = reduce_shape(op, in.shape, axes, false),
              kept = reduce_shape(op, in.shape, axes, true);
  MX_CHECK(out.shape == dropped || out.shape == kept, InvalidArgument, "[", to_string(op),
           "] expected a result of shape ", dropped, " or ", kept, " for an input of shape ", in.shape,
           " and axes ", axes, ", got ", out.shape);
  const Shape reduced = normalize_axes(axes, in.rank(), to_string(op));
  Tensor one_in = in, one_out = out;
  const EqualResults equal(one_in, one_out, reduced);
  const Job job{
      op,
      fold_of(op),
      options.correction,
      ReducePlan(one_in, one_out, reduced, /*ordered=*/op == ReduceOp::argmax || op == ReduceOp::argmin),
      &one_in,
      out.data,
      out.dtype};
  MX_CHECK(job.plan.reduced_count > 0 || !throws_on_nothing(op), InvalidArgument, "[", to_string(op),
           "] expected at least one element to choose from, got shape ", in.shape, " and axes ", axes);
  if (job.plan.kept_count == 0) return;
  run_in_type(job, in.dtype, options.in);
  equal.copy_along(one_out);
}

}  // namespace mx::kernels
