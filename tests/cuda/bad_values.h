// Samples of operators with one value that the operator refuses: an index out of range, a label that is no
// class, a probability above 1. For tests that compare the errors of CUDA kernels with those of the CPU.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "ndarray/ndarray.h"
#include "operators/operator.h"
#include "operators/samples/samples.h"
#include "tests/operators/registry_support.h"

namespace mx::test {

inline constexpr const char* kRefusingOperators[] = {"argselect",     "bernoulli_of",
                                                     "cross_entropy", "cross_entropy_backward",
                                                     "embedding",     "embedding_gradient",
                                                     "gather",        "gather_nd",
                                                     "index_update",  "max_pool_backward",
                                                     "nll_loss",      "nll_loss_backward",
                                                     "one_hot",       "put_nd",
                                                     "scatter",       "take"};

/// The array with `value` at this place in row-major order.
inline NDArray with_value(const NDArray& x, int64_t place, double value) {
  std::vector<double> values = x.to(f64).to_vector<double>();
  values[static_cast<size_t>(place)] = value;
  return array(values).reshape(x.shape()).to(x.dtype());
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
          // The CPU draws elements in parallel, so it may name any of several.
          if (name != "bernoulli_of") compare(*op, sample.attrs, inputs);
        }
      }
    }
  }
}

}  // namespace mx::test
