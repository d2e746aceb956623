// Samples of operators with one value that the operator refuses: an index out of range, a label that is no
// class, a probability above 1. For tests that compare the errors of CUDA kernels with those of the CPU.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "ndarray/ndarray.h"
#include "operators/linalg_records.h"
#include "operators/operator.h"
#include "operators/operators.h"
#include "operators/random_records.h"
#include "operators/samples/samples.h"
#include "tests/operators/registry_support.h"

namespace mx::test {

inline constexpr const char* kRefusingOperators[] = {"argselect",
                                                     "bernoulli_of",
                                                     "cross_entropy",
                                                     "cross_entropy_backward",
                                                     "csr_matmul",
                                                     "csr_sample",
                                                     "ctc_loss",
                                                     "ctc_loss_backward",
                                                     "embedding",
                                                     "embedding_gradient",
                                                     "gather",
                                                     "gather_nd",
                                                     "index_update",
                                                     "max_pool_backward",
                                                     "nll_loss",
                                                     "nll_loss_backward",
                                                     "one_hot",
                                                     "put_nd",
                                                     "segment_expand",
                                                     "segment_max",
                                                     "segment_mean",
                                                     "segment_min",
                                                     "segment_offsets",
                                                     "segment_sum",
                                                     "sum_rows",
                                                     "scatter",
                                                     "take"};

/// The array with `value` at this place in row-major order.
inline NDArray with_value(const NDArray& x, int64_t place, double value) {
  std::vector<double> values = x.to(f64).to_vector<double>();
  values[static_cast<size_t>(place)] = value;
  return array(values).reshape(x.shape()).to(x.dtype());
}

/// The matrix with all elements of a row replaced.
inline NDArray with_row(const NDArray& x, int64_t row, double value) {
  NDArray result = x;
  for (int64_t j = 0; j < x.shape()[1]; ++j) result = with_value(result, row * x.shape()[1] + j, value);
  return result;
}

/// Returns the message of the InvalidArgument that a wait for the outputs throws, "" if there is none.
inline std::string refusal_of(const Operator& op, const Attrs& attrs, const std::vector<NDArray>& inputs) {
  try {
    for (const NDArray& output : call(op, attrs, inputs)) output.to(cpu()).wait();
    return "";
  } catch (const InvalidArgument& e) {
    return e.what();
  }
}

/// Calls compare(op, attrs, inputs) for matrices and weights that an operator refuses.
inline void for_each_bad_matrix(
    const std::function<void(const Operator&, const Attrs&, const std::vector<NDArray>&)>& compare) {
  const NDArray good = array({{4.f, 1.f, 0.f}, {1.f, 3.f, 1.f}, {0.f, 1.f, 2.f}}).to(f64);
  const NDArray singular = array({{1.f, 2.f, 3.f}, {2.f, 4.f, 6.f}, {1.f, 0.f, 1.f}}).to(f64);
  const NDArray zero_inside = array({{1.f, 2.f, 3.f}, {0.f, 0.f, 5.f}, {0.f, 0.f, 6.f}}).to(f64);
  const NDArray indefinite = array({{4.f, 1.f, 0.f}, {1.f, -3.f, 1.f}, {0.f, 1.f, 2.f}}).to(f64);
  const auto stack_of = [&](const NDArray& bad) {
    return stack(std::vector<NDArray>{good, good, bad, good, bad, good}, 0).reshape({2, 3, 3, 3});
  };
  const auto all = [&](const char* name, const Attrs& attrs, const NDArray& bad, bool right_side) {
    for (const NDArray& a : {bad, stack_of(bad), stack_of(bad).to(f32)}) {
      std::vector<NDArray> inputs = {a};
      if (right_side) inputs.push_back(ones({3, 2}, a.dtype()));
      compare(*find_operator(name), attrs, inputs);
    }
  };
  for (const NDArray& bad : {singular, zero_inside, zeros({3, 3}, f64)}) {
    all("linalg_inv", {}, bad, false);
    all("linalg_solve", {}, bad, true);
  }
  for (const bool upper : {false, true}) {
    all("linalg_solve_triangular", mx::detail::TriangularAttrs{.upper = upper}, zero_inside, true);
    all("linalg_cholesky", mx::detail::SymmetricAttrs{.upper = upper}, indefinite, false);
  }
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const NDArray key = array<int64_t>({1, 2}), zeros_in_row = with_row(ones({3, 4}, f64), 1, 0);
  const auto draw = [&](const NDArray& weights, bool logits) {
    compare(*find_operator("categorical"), mx::detail::CategoricalAttrs{.samples = 2, .logits = logits},
            {weights, key});
  };
  for (const int64_t place : {0, 6, 11}) {
    for (const double value : {-1., inf, -inf, nan}) draw(with_value(ones({3, 4}, f64), place, value), false);
    for (const double value : {inf, nan}) draw(with_value(ones({3, 4}, f64), place, value), true);
  }
  draw(zeros_in_row, false);
  draw(with_row(ones({3, 4}, f64), 2, -inf), true);
}

/// Calls compare(op, attrs, inputs) for samples with a bad value at the first, a middle or the last place,
/// and with bad values at all of these.
inline void for_each_bad_value(
    const std::function<void(const Operator&, const Attrs&, const std::vector<NDArray>&)>& compare) {
  for (const Operator* op : all_operators()) {
    const std::string name = op->name();
    if (std::find(std::begin(kRefusingOperators), std::end(kRefusingOperators), name) ==
        std::end(kRefusingOperators))
      continue;
    for (const Sample& sample : samples_of(*op)) {
      for (size_t i = 0; i < sample.inputs.size(); ++i) {
        const NDArray& input = sample.inputs[i];
        const bool refuses = name == "bernoulli_of" ? i == 0 : input.dtype() == i32 || input.dtype() == i64;
        const int64_t n = input.numel();
        if (!refuses || n == 0) continue;
        std::vector<NDArray> inputs = sample.inputs;
        for (const double value : {1000., -1000.}) {
          for (const int64_t place : {int64_t{0}, n / 2, n - 1}) {
            inputs[i] = with_value(input, place, value);
            compare(*op, sample.attrs, inputs);
          }
          inputs[i] = with_value(with_value(inputs[i], n / 2, value + 1), n / 3, value + 2);
          // The CPU works in parallel here, so it may name any of several.
          if (name != "bernoulli_of" && !name.starts_with("ctc")) compare(*op, sample.attrs, inputs);
        }
      }
    }
  }
}

}  // namespace mx::test
