// Helpers shared by the tests of operators' gradients: samples in float64, heads, calls of gradients, and
// finite differences.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/operators/registry_support.h"

namespace mx::test {

/// Several inputs, outputs or gradients. An empty handle means that an entry is absent.
using Arrays = std::vector<NDArray>;

/// Returns the sample with all floating-point inputs converted to `dtype`.
inline Sample with_floats(const Sample& sample, DType dtype) {
  Sample converted = sample;
  for (NDArray& input : converted.inputs)
    if (is_floating(input.dtype())) input = input.to(dtype);
  return converted;
}

inline bool any_floating(const Arrays& arrays) {
  return std::any_of(arrays.begin(), arrays.end(), [](const NDArray& a) { return is_floating(a.dtype()); });
}

/// Returns pseudorandom heads, exact in every floating-point type, for the outputs that have gradients.
inline Arrays heads_for(const Arrays& outputs) {
  Arrays heads;
  uint64_t state = 12345;
  for (const NDArray& output : outputs) {
    heads.emplace_back();
    if (!is_floating(output.dtype())) continue;
    std::vector<double> values;
    for (int64_t i = 0; i < output.numel(); ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      values.push_back(static_cast<double>((state >> 33) % 61) / 16 - 1.9375);
    }
    heads.back() = array(values).reshape(output.shape()).to(output.dtype()).to(output.context());
  }
  return heads;
}

inline std::vector<uint8_t> floating_inputs(const Arrays& inputs) {
  std::vector<uint8_t> wanted;
  for (const NDArray& input : inputs) wanted.push_back(is_floating(input.dtype()) ? 1 : 0);
  return wanted;
}

/// Returns the gradients that the operator's gradient sets.
inline Arrays gradients_of(const Operator& op, const Attrs& attrs, const Arrays& inputs,
                           const Arrays& outputs, const Arrays& heads, const std::vector<uint8_t>& wanted) {
  Arrays results(inputs.size());
  GradientContext context(op, attrs, inputs, outputs, heads, wanted, results);
  op.gradient(context);
  return results;
}

/// The same with heads_for(), for all floating-point inputs.
inline Arrays gradients_of(const Operator& op, const Sample& sample) {
  const Arrays outputs = call(op, sample.attrs, sample.inputs);
  return gradients_of(op, sample.attrs, sample.inputs, outputs, heads_for(outputs),
                      floating_inputs(sample.inputs));
}

/// Returns sum(head * (high - low)). Equal elements, including infinities, differ by 0.
inline double difference(const Arrays& heads, const Arrays& high, const Arrays& low) {
  double total = 0;
  for (size_t k = 0; k < heads.size(); ++k) {
    if (!heads[k].defined()) continue;
    const auto h = heads[k].to_vector<double>(), a = high[k].to_vector<double>(),
               b = low[k].to_vector<double>();
    for (size_t i = 0; i < h.size(); ++i) total += a[i] == b[i] ? 0 : h[i] * (a[i] - b[i]);
  }
  return total;
}

/// Returns d sum(head * f(inputs)) / d inputs[which], by central differences with two step sizes,
/// extrapolated to step 0. The input is in f64.
template <class F>
std::vector<double> finite_differences(const F& f, const Arrays& inputs, const Arrays& heads, size_t which) {
  std::vector<double> result;
  const std::vector<double> values = inputs[which].to_vector<double>();
  for (size_t i = 0; i < values.size(); ++i) {
    const auto at = [&](double value) {
      std::vector<double> changed = values;
      changed[i] = value;
      Arrays arguments = inputs;
      arguments[which] = array(changed).reshape(inputs[which].shape());
      return f(arguments);
    };
    const auto slope = [&](double step) {
      const double high = values[i] + step, low = values[i] - step;
      return difference(heads, at(high), at(low)) / (high - low);
    };
    const double step = 2e-4 * std::max(1.0, std::abs(values[i]));
    result.push_back((4 * slope(step / 2) - slope(step)) / 3);
  }
  return result;
}

/// Returns the gradient's values; zeros for an empty handle.
inline std::vector<double> values_of(const NDArray& gradient, const NDArray& input) {
  return gradient.defined() ? gradient.to_vector<double>()
                            : std::vector<double>(static_cast<size_t>(input.numel()), 0.0);
}

inline void expect_near(const std::vector<double>& expected, const std::vector<double>& got, double tolerance,
                        const std::string& what) {
  ASSERT_EQ(expected.size(), got.size()) << what;
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(expected[i], got[i], tolerance * std::max(1.0, std::abs(expected[i])))
        << what << ", element " << i;
}

/// Compares the gradients of a sample with finite differences, in float64.
inline void expect_gradients(const Operator& op, const Sample& sample) {
  const Sample wide = with_floats(sample, f64);
  const Arrays outputs = call(op, wide.attrs, wide.inputs), heads = heads_for(outputs);
  const Arrays gradients =
      gradients_of(op, wide.attrs, wide.inputs, outputs, heads, floating_inputs(wide.inputs));
  for (size_t i = 0; i < wide.inputs.size(); ++i) {
    if (!is_floating(wide.inputs[i].dtype())) continue;
    const auto f = [&](const Arrays& inputs) { return call(op, wide.attrs, inputs); };
    expect_near(finite_differences(f, wide.inputs, heads, i), values_of(gradients[i], wide.inputs[i]), 2e-7,
                "the gradient of input " + std::to_string(i));
  }
}

/// Calls f(op, sample) for all samples with a derivative.
template <class F>
void for_each_differentiable(const F& f) {
  for_each_sample([&](const Operator& op, const Sample& sample) {
    if (op.gradient != nullptr && sample.differentiable && any_floating(sample.inputs)) f(op, sample);
  });
}

}  // namespace mx::test
