// Arrays with known values, the same values in every layout, and comparisons with independently computed
// numbers.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "operators/operator.h"
#include "operators/samples/samples.h"
#include "tests/support/tolerance.h"

namespace mx::test {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline const double kNan = std::nan("");

using Values = std::vector<double>;

inline Values values(const NDArray& a) { return a.to_vector<double>(); }

/// Returns normally distributed numbers, rounded to the type; small whole numbers for integers.
inline NDArray numbers(const Shape& shape, DType dtype, uint64_t seed = 1) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal;
  Values list(static_cast<size_t>(shape.numel()));
  for (double& v : list)
    v = is_floating(dtype) ? normal(engine) : static_cast<double>(engine() % 7) - (dtype == u8 ? 0 : 2);
  return from_data(list.data(), shape).to(dtype);
}

inline void expect_values(const Values& want, const NDArray& got, const std::string& what, double scale = 1) {
  const Values found = values(got);
  ASSERT_EQ(want.size(), found.size()) << what;
  const double bound = tolerance(got.dtype()) * scale;
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(want[i])) {
      EXPECT_TRUE(std::isnan(found[i])) << what << " [" << i << "] " << found[i];
    } else if (std::isinf(want[i])) {
      EXPECT_EQ(want[i], found[i]) << what << " [" << i << ']';
    } else {
      EXPECT_NEAR(want[i], found[i], bound * std::max(1.0, std::abs(want[i]))) << what << " [" << i << ']';
    }
  }
}

/// Returns the same elements in other memory layouts: contiguous, transposed order, with gaps, reversed.
inline std::vector<NDArray> layouts(const NDArray& x) {
  std::vector<NDArray> list = {x};
  if (x.rank() == 0 || x.numel() == 0) return list;
  list.push_back(x.transpose().clone().transpose());
  Shape twice = x.shape();
  twice[0] *= 2;
  list.push_back(zeros(twice, x.dtype()).slice(0, Slice{1, {}, 2}));
  list.back().copy_from(x);
  const NDArray backwards = x.slice(x.rank() - 1, Slice{{}, {}, -1}).clone();
  list.push_back(backwards.slice(x.rank() - 1, Slice{{}, {}, -1}));
  return list;
}

/// Returns the position of row-major element i.
inline Shape place(const Shape& shape, int64_t i) {
  Shape at = shape;
  for (int d = shape.rank() - 1; d >= 0; --d) {
    at[d] = i % shape[d];
    i /= shape[d];
  }
  return at;
}

/// Applies f to the elements of each cell, in row-major order of the reduced axes.
inline Values fold(const NDArray& x, const Shape& axes, const std::function<double(const Values&)>& f) {
  const Shape& shape = x.shape();
  const Shape dropped = normalize_axes(axes, shape.rank(), "fold");
  Shape kept = shape;
  for (int64_t d : dropped) kept[static_cast<int>(d)] = 1;
  std::vector<Values> cells(static_cast<size_t>(kept.numel()));
  const Values all = values(x);
  for (size_t i = 0; i < all.size(); ++i) {
    const Shape at = place(shape, static_cast<int64_t>(i));
    int64_t cell = 0;
    for (int d = 0; d < shape.rank(); ++d) cell = cell * kept[d] + (kept[d] == 1 ? 0 : at[d]);
    cells[static_cast<size_t>(cell)].push_back(all[i]);
  }
  Values result;
  for (const Values& cell : cells) result.push_back(f(cell));
  return result;
}

/// Returns element `at` of `x`, whose shape broadcasts to the shape that `at` is a position in.
inline double broadcast_value(const NDArray& x, const Values& list, const Shape& at) {
  int64_t i = 0;
  for (int d = 0; d < x.rank(); ++d)
    i = i * x.shape()[d] + (x.shape()[d] == 1 ? 0 : at[at.rank() - x.rank() + d]);
  return list[static_cast<size_t>(i)];
}

/// Calls f(op, sample) for all samples of an operator in all its types; only floating-point inputs are
/// converted.
inline void each_sample(const char* name, const std::function<void(const Operator&, const Sample&)>& f) {
  const Operator* op = find_operator(name);
  ASSERT_NE(nullptr, op) << name;
  const std::vector<DType> every(std::begin(kAllDTypes), std::end(kAllDTypes));
  for (DType dtype : op->dtypes.empty() ? every : op->dtypes) {
    for (Sample sample : samples_of(*op)) {
      for (NDArray& input : sample.inputs)
        if (is_floating(input.dtype())) {
          // Keep the layout through the conversion.
          NDArray converted = layouts(input.to(dtype))[input.contiguous() ? 0 : 1];
          input = converted;
        }
      sample.label = std::string(name) + ' ' + to_string(dtype) + ' ' + sample.label;
      f(*op, sample);
    }
  }
}

}  // namespace mx::test
