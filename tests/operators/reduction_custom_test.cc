// Reductions that consist of one file each, compared with plain loops.
#include "operators/reduction_custom.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "tests/operators/gradient_support.h"
#include "tests/support/errors.h"
#include "tests/support/tolerance.h"

namespace mx {

NDArray rms(const Arg& x, const Axes& axes = {}, bool keep_dims = false);
namespace detail {
OperatorFamily family_rms();
}  // namespace detail

namespace {

using test::contains;
using test::error_of;

template <class T>
struct Spread {  // a state of two numbers; undefined without elements
  static constexpr bool kNeedsElements = true;
  T low = std::numeric_limits<T>::infinity(), high = -std::numeric_limits<T>::infinity();
  void add(T x) {
    low = x < low ? x : low;
    high = x > high ? x : high;
  }
  void join(const Spread& other) {
    low = other.low < low ? other.low : low;
    high = other.high > high ? other.high : high;
  }
  T result(int64_t) const { return high - low; }
};

template <class T>
struct CountAbove {  // the result is an integer
  int64_t n = 0;
  void add(T x) { n += x > 1; }
  void join(const CountAbove& other) { n += other.n; }
  int64_t result(int64_t) const { return n; }
};

template <class T>
struct AllPositive {  // the result is a bool
  bool holds = true;
  void add(T x) { holds = holds && x > 0; }
  void join(const AllPositive& other) { holds = holds && other.holds; }
  bool result(int64_t) const { return holds; }
};

template <class T>
struct PlainSum {
  T total = 0;
  void add(T x) { total += x; }
  void join(const PlainSum& other) { total += other.total; }
  T result(int64_t) const { return total; }
};

const Operator kSpread = reduction_operator<Spread>("test_spread", "The largest less the smallest.");
const Operator kCountAbove = reduction_operator<CountAbove>("test_count_above", "How many are above 1.");
const Operator kAllPositive = reduction_operator<AllPositive>("test_all_positive", "Are all above 0?");
const Operator kPlainSum = reduction_operator<PlainSum>("test_plain_sum", "The sum.");

// Returns the result for each position in the kept dimensions, computed from the list of its elements.
std::vector<double> oracle(const NDArray& x, const Shape& axes,
                           const std::function<double(const std::vector<double>&)>& f) {
  const Shape dropped = normalize_axes(axes, x.rank(), "oracle");
  Shape order, kept;
  for (int i = 0; i < x.rank(); ++i)
    if (std::find(dropped.begin(), dropped.end(), i) == dropped.end()) {
      order.push_back(i);
      kept.push_back(x.shape()[i]);
    }
  for (int64_t axis : dropped) order.push_back(axis);
  const std::vector<double> values = (x.rank() == 0 ? x : x.transpose(order)).to_vector<double>();
  const int64_t outputs = kept.numel(), n = outputs == 0 ? 0 : static_cast<int64_t>(values.size()) / outputs;
  std::vector<double> result;
  for (int64_t i = 0; i < outputs; ++i)
    result.push_back(f({values.begin() + i * n, values.begin() + (i + 1) * n}));
  return result;
}

double rms_of(const std::vector<double>& x) {
  double total = 0;
  for (double v : x) total += v * v;
  return std::sqrt(total / static_cast<double>(x.size()));
}
double spread_of(const std::vector<double>& x) {
  return *std::max_element(x.begin(), x.end()) - *std::min_element(x.begin(), x.end());
}

void expect_values(const std::vector<double>& expected, const NDArray& got, double relative) {
  const std::vector<double> values = got.to_vector<double>();
  ASSERT_EQ(expected.size(), values.size());
  for (size_t i = 0; i < values.size(); ++i)
    ASSERT_NEAR(expected[i], values[i], relative * (std::abs(expected[i]) + 1e-6)) << i;
}

// All combinations of axes, of arrays with every memory layout.
TEST(ReductionCustom, EveryTypeLayoutAndAxis) {
  const NDArray base = (arange(0, 3 * 70 * 40, 1, f32).reshape({3, 70, 40}) % 97.f) / 25.f - 1.5f;
  for (DType type : kAllDTypes) {
    const double tolerance = is_floating(type) ? test::tolerance(type) : test::tolerance(f32);
    const NDArray x = (is_floating(type) ? base : abs(base) * 8).to(type);
    for (const NDArray& view : {x, x.transpose(), x.swap_axes(0, 1), x.slice(2, {{}, {}, -3}),
                                x.slice(1, {5, 6}), x.select(0, 1).broadcast_to({4, 70, 40})})
      for (const Axes& axes : {Axes{}, Axes{0}, Axes{1}, Axes{2}, Axes{0, 1}, Axes{-1, 0}, Axes{1, 2}}) {
        SCOPED_TRACE(testing::Message()
                     << type << ' ' << view.shape() << ' ' << view.strides() << ' ' << axes);
        const NDArray y = rms(view, axes);
        EXPECT_EQ(is_floating(type) ? type : f32, y.dtype());
        expect_values(oracle(view, axes, rms_of), y, tolerance);
        const ReduceAttrs attrs{axes, true};
        const NDArray kept = call(kSpread, attrs, view);
        EXPECT_EQ(view.rank(), kept.rank());
        expect_values(oracle(view, axes, spread_of), kept, tolerance);
        if (testing::Test::HasFailure()) return;
      }
  }
}

TEST(ReductionCustom, ManyElementsOfFewOutputsAreTakenInByManyTasks) {
  for (const Shape& shape : {Shape{1'000'003}, Shape{3, 200'001}, Shape{50'000, 3}, Shape{9'000, 70}}) {
    const NDArray x = (arange(0, static_cast<double>(shape.numel()), 1, f32) % 101.f).reshape(shape) - 50.f;
    for (const Axes& axes : {Axes{}, Axes{0}, Axes{-1}}) {
      SCOPED_TRACE(testing::Message() << shape << ' ' << axes);
      const NDArray counts = call(kCountAbove, ReduceAttrs{axes}, x);
      EXPECT_EQ(i64, counts.dtype());
      expect_values(oracle(x, axes,
                           [](const std::vector<double>& v) {
                             return static_cast<double>(
                                 std::count_if(v.begin(), v.end(), [](double e) { return e > 1; }));
                           }),
                    counts, 0);
      expect_values(oracle(x, axes, spread_of), call(kSpread, ReduceAttrs{axes}, x), 0);
    }
  }
}

TEST(ReductionCustom, ResultsMayBeBools) {
  const NDArray x = array({{1.f, 2.f}, {3.f, -4.f}});
  const NDArray y = call(kAllPositive, ReduceAttrs{{1}}, x);
  EXPECT_EQ(bool_, y.dtype());
  EXPECT_EQ((std::vector<bool>{true, false}), y.to_vector<bool>());
  EXPECT_TRUE(call(kAllPositive, ReduceAttrs{}, zeros({0})).item<bool>()) << "of no elements";
}

TEST(ReductionCustom, OfNoElements) {
  EXPECT_EQ((std::vector<float>{0, 0}), call(kPlainSum, ReduceAttrs{{1}}, zeros({2, 0})).to_vector<float>());
  EXPECT_EQ((Shape{0, 3}), call(kPlainSum, ReduceAttrs{{1}}, zeros({0, 2, 3})).shape());
  const std::string message = error_of<InvalidArgument>([] {
    call(kSpread, ReduceAttrs{{1}}, zeros({2, 0}));
  });
  EXPECT_TRUE(contains(message, "test_spread") && contains(message, "(2, 0)")) << message;
}

// In f32 a serial sum of ones stops growing at 2^24.
TEST(ReductionCustom, RunsAreJoinedAsATree) {
  const NDArray x = ones({1}).broadcast_to({(1 << 24) + (1 << 20)});
  EXPECT_EQ(float{(1 << 24) + (1 << 20)}, call(kPlainSum, ReduceAttrs{}, x).item<float>());
}

TEST(ReductionCustom, BadAxesAreNamed) {
  const std::string message = error_of<InvalidArgument>([] { rms(ones({2, 3}), 2); });
  EXPECT_TRUE(contains(message, "rms") && contains(message, "reduction_custom_test.cc")) << message;
}

TEST(ReductionCustom, GradientsFollowFromTheDerivative) {
  const Operator& op = *detail::family_rms()[0];
  for (const Sample& sample : op.samples()) test::expect_gradients(op, sample);
}

TEST(ReductionCustom, TheRegistryTakesThem) {
  if (find_operator("rms") == nullptr) register_operator(*detail::family_rms()[0]);
  const Operator* op = find_operator("rms");
  ASSERT_NE(nullptr, op);
  for (const Sample& sample : op->samples())
    EXPECT_EQ(
        call(*op, sample.attrs, sample.inputs)[0].to_vector<float>(),
        call(*op, sample.attrs, std::vector{sample.inputs[0].to(virt(0))})[0].to(cpu()).to_vector<float>())
        << sample.label;
}

}  // namespace
}  // namespace mx
