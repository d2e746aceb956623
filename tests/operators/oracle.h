// Arrays on the host as plain numbers, and a comparison of an operator's samples with a plain function of
// such arrays.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "operators/operator.h"
#include "operators/samples/samples.h"

namespace mx::test {

/// Row-major elements.
struct Host {
  Shape shape;
  std::vector<double> v;

  Host() = default;
  explicit Host(const Shape& s, double value = 0) : shape(s), v(static_cast<size_t>(s.numel()), value) {}
  explicit Host(const NDArray& a) : shape(a.shape()), v(a.to_vector<double>()) {}

  size_t place(const Shape& at) const {
    int64_t i = 0;
    for (int d = 0; d < shape.rank(); ++d) i = i * shape[d] + at[d];
    return static_cast<size_t>(i);
  }
  double& operator[](const Shape& at) { return v[place(at)]; }
  double operator[](const Shape& at) const { return v[place(at)]; }
  /// Returns the element at position `at` of the shape that this array broadcasts to.
  double wide(const Shape& at) const {
    Shape own = shape;
    for (int d = 0; d < shape.rank(); ++d) own[d] = shape[d] == 1 ? 0 : at[d + at.rank() - shape.rank()];
    return v[place(own)];
  }
};

/// Calls f(position) for all positions in row-major order.
template <class F>
void each_position(const Shape& shape, const F& f) {
  Shape at = Shape::filled(shape.rank(), 0);
  for (int64_t i = 0, n = shape.numel(); i < n; ++i) {
    f(at);
    for (int d = at.rank() - 1; d >= 0 && ++at[d] == shape[d]; --d) at[d] = 0;
  }
}

inline int64_t axis_of(int64_t axis, int rank) { return axis < 0 ? axis + rank : axis; }

/// Returns the value reduced modulo the range of an integer type that may not hold it.
inline double wrapped(double value, DType type) {
  const double range = type == i8 || type == u8 ? 256 : type == i32 ? 4294967296.0 : 0;
  if (range == 0) return value;
  double rest = value - range * std::floor(value / range);
  if (type != u8 && rest >= range / 2) rest -= range;
  return rest;
}

inline void expect_equal(const NDArray& got, const Host& expected, double tolerance,
                         const std::string& what) {
  ASSERT_EQ(expected.shape, got.shape()) << what;
  const std::vector<double> values = got.to_vector<double>();
  for (size_t i = 0; i < values.size(); ++i) {
    const double e = expected.v[i], g = values[i];
    if (std::isnan(e) ? std::isnan(g) : e == g) continue;
    ASSERT_LE(std::fabs(e - g), tolerance * std::max(1.0, std::fabs(e)))
        << what << ": expected " << e << ", got " << g << " at element " << i;
  }
}

struct OracleCase {
  std::vector<NDArray> inputs;
  std::vector<Host> in;  ///< values of the inputs
  AttrMap attrs;
  DType dtype;  ///< of inputs[0]
  int64_t i(const char* name) const { return std::get<int64_t>(attrs.at(name)); }
  bool b(const char* name) const { return std::get<bool>(attrs.at(name)); }
  double d(const char* name) const { return std::get<double>(attrs.at(name)); }
  const std::string& s(const char* name) const { return std::get<std::string>(attrs.at(name)); }
  const std::vector<int64_t>& list(const char* name) const {
    return std::get<std::vector<int64_t>>(attrs.at(name));
  }
};

/// Compares all samples of an operator, in all its types, with `oracle`. f32 inputs are converted to each
/// type.
inline void expect_samples(const char* name,
                           const std::function<std::vector<Host>(const OracleCase&)>& oracle,
                           double tolerance = 0) {
  const Operator* op = find_operator(name);
  ASSERT_NE(nullptr, op) << name;
  std::vector<DType> types = op->dtypes;
  if (types.empty()) types.assign(std::begin(kAllDTypes), std::end(kAllDTypes));
  for (const Sample& sample : samples_of(*op)) {
    for (DType type : types) {
      OracleCase c;
      c.dtype = type;
      for (size_t i = 0; i < sample.inputs.size(); ++i) {
        const NDArray& input = sample.inputs[i];
        c.inputs.push_back(i == 0 || input.dtype() == f32 ? input.to(type) : input);
        c.in.emplace_back(c.inputs.back());
      }
      c.attrs = sample.attrs.empty() ? AttrMap{} : sample.attrs.to_map();
      const std::vector<NDArray> got = call(*op, sample.attrs, c.inputs);
      const std::vector<Host> expected = oracle(c);
      ASSERT_EQ(expected.size(), got.size()) << name;
      const double allowed = type == f16    ? std::max(tolerance, tolerance > 0 ? 2e-3 : 0)
                             : type == bf16 ? std::max(tolerance, tolerance > 0 ? 1.6e-2 : 0)
                                            : tolerance;
      for (size_t i = 0; i < got.size(); ++i)
        expect_equal(got[i], expected[i], allowed,
                     detail::concat(name, ' ', sample.label, " of ", type, ", output ", i));
    }
  }
}

}  // namespace mx::test
