// Derivatives of activations times a head, and binary cross entropy: close to the exact values, with the same
// special values. binary_test.cc checks that an element's bits do not depend on its position.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "operators/kernels/binary.h"
#include "tests/support/held_tensor.h"
#include "tests/support/numbers.h"

namespace mx {
namespace {

using kernels::BinaryOp;
using test::Held;
using test::make_tensor;

using Real = long double;

using test::kInf;

Real sigmoid(Real x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }

/// Returns the derivative as a function of the result or of the operand, whichever the op takes.
Real slope(BinaryOp op, Real v) {
  switch (op) {
    case BinaryOp::relu_backward:
      return v > 0 ? 1 : 0;
    case BinaryOp::tanh_backward:
      return 1 - v * v;
    case BinaryOp::sigmoid_backward:
      return v * (1 - v);
    case BinaryOp::silu_backward:
      return sigmoid(v) * (1 + v * sigmoid(-v));
    case BinaryOp::gelu_backward:
      return std::erfc(-v / std::numbers::sqrt2_v<Real>) / 2 +
             v * std::exp(-v * v / 2) * std::numbers::inv_sqrtpi_v<Real> / std::numbers::sqrt2_v<Real>;
    default: {  // gelu_tanh
      const Real k = 2 * std::numbers::sqrt2_v<Real> * std::numbers::inv_sqrtpi_v<Real>, c = 0.044715L;
      const Real s = sigmoid(k * (v + c * v * v * v));
      return s + v * s * (1 - s) * k * (1 + 3 * c * v * v);
    }
  }
}

template <class T>
T of(BinaryOp op, T a, T b) {
  Held x = make_tensor(dtype_of<T>, {}), y = make_tensor(dtype_of<T>, {}), out = make_tensor(dtype_of<T>, {});
  *x.tensor.as<T>() = a;
  *y.tensor.as<T>() = b;
  kernels::binary(op, out.tensor, x.tensor, y.tensor);
  return *out.tensor.as<T>();
}

constexpr BinaryOp kSlopes[] = {BinaryOp::relu_backward,    BinaryOp::tanh_backward,
                                BinaryOp::sigmoid_backward, BinaryOp::silu_backward,
                                BinaryOp::gelu_backward,    BinaryOp::gelu_tanh_backward};

template <class T>
void check_slopes() {
  constexpr int64_t n = 100001;
  const DType dtype = dtype_of<T>;
  Held head = make_tensor(dtype, {n}), v = make_tensor(dtype, {n}), out = make_tensor(dtype, {n});
  for (BinaryOp op : kSlopes) {
    // The results of tanh and sigmoid do not exceed 1.
    const double reach = op == BinaryOp::tanh_backward || op == BinaryOp::sigmoid_backward ? 1 : 45;
    for (int64_t i = 0; i < n; ++i) {
      head.tensor.as<T>()[i] = static_cast<T>(i % 7 - 3);
      v.tensor.as<T>()[i] =
          static_cast<T>(reach * static_cast<double>(i - n / 2) / static_cast<double>(n / 2));
    }
    kernels::binary(op, out.tensor, head.tensor, v.tensor);
    for (int64_t i = 0; i < n; ++i) {
      const Real x = v.tensor.as<T>()[i], h = head.tensor.as<T>()[i];
      const Real expected = h * slope(op, x), got = out.tensor.as<T>()[i];
      ASSERT_LE(std::fabs(got - expected), 4 * std::numeric_limits<T>::epsilon() * std::fabs(h))
          << kernels::to_string(op) << " at " << x << ": " << got << ", not " << expected;
    }
  }
}

TEST(GradientRows, SlopesOfFloat32AreRight) { check_slopes<float>(); }
TEST(GradientRows, SlopesOfFloat64AreRight) { check_slopes<double>(); }

template <class T>
void check_far_out() {
  for (BinaryOp op : {BinaryOp::silu_backward, BinaryOp::gelu_backward, BinaryOp::gelu_tanh_backward}) {
    for (double x : {1e4, 1e30, kInf}) {
      EXPECT_EQ(T(3), of<T>(op, 3, static_cast<T>(x))) << kernels::to_string(op) << x;
      EXPECT_NEAR(0, of<T>(op, 3, static_cast<T>(-x)), 1e-30) << kernels::to_string(op) << -x;
    }
    EXPECT_TRUE(std::isnan(of<T>(op, 3, std::numeric_limits<T>::quiet_NaN()))) << kernels::to_string(op);
  }
  EXPECT_EQ(0, of<T>(BinaryOp::relu_backward, 3, 0));
  EXPECT_EQ(0, of<T>(BinaryOp::relu_backward, std::numeric_limits<T>::infinity(), -1));
  EXPECT_EQ(3, of<T>(BinaryOp::relu_backward, 3, std::numeric_limits<T>::denorm_min()));
}

TEST(GradientRows, FarOutTheyAreZeroOrTheHead) {
  check_far_out<float>();
  check_far_out<double>();
}

Real cross_entropy(Real x, Real t) {
  const Real yes = std::max(std::log(x), -100.0L), no = std::max(std::log1p(-x), -100.0L);
  return -t * yes - (1 - t) * no;
}

template <class T>
void check_cross_entropy() {
  for (int i = 0; i <= 2000; ++i)
    for (double t : {0., 0.25, 1.}) {
      // Also close to both ends of the interval.
      for (double x : {i / 2000., std::pow(10., -i / 40.), 1 - std::pow(2., -i / 40.)}) {
        const T p = static_cast<T>(x), target = static_cast<T>(t);
        const Real expected = cross_entropy(p, target);
        ASSERT_NEAR(static_cast<double>(expected), of<T>(BinaryOp::binary_cross_entropy, p, target),
                    4 * std::numeric_limits<T>::epsilon() * std::max(1.0, static_cast<double>(expected)))
            << x << " and " << t;
      }
    }
  EXPECT_EQ(0, of<T>(BinaryOp::binary_cross_entropy, 0, 0));
  EXPECT_EQ(0, of<T>(BinaryOp::binary_cross_entropy, 1, 1));
  EXPECT_EQ(100, of<T>(BinaryOp::binary_cross_entropy, 0, 1));
  EXPECT_EQ(100, of<T>(BinaryOp::binary_cross_entropy, 1, 0));
  for (double x : {-0.5, 1.5, std::nan("")})
    for (double t : {0., 0.5, 1.})
      EXPECT_TRUE(std::isnan(of<T>(BinaryOp::binary_cross_entropy, static_cast<T>(x), static_cast<T>(t))))
          << x;
}

TEST(GradientRows, CrossEntropyOfFloat32IsRight) { check_cross_entropy<float>(); }
TEST(GradientRows, CrossEntropyOfFloat64IsRight) { check_cross_entropy<double>(); }

}  // namespace
}  // namespace mx
