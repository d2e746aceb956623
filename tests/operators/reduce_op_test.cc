#include "operators/reduce.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/scan.h"
#include "tests/operators/values.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;
using test::kInfinity;
using test::kNan;
using test::Values;

double total(const Values& x) { return std::accumulate(x.begin(), x.end(), 0.0); }
double variance(const Values& x, double correction) {
  const double n = static_cast<double>(x.size()), m = total(x) / n;
  double squares = 0;
  for (double v : x) squares += (v - m) * (v - m);
  return squares / std::max(0.0, n - correction);
}
double norm_of(const Values& x, double p) {
  double sum = 0, high = 0, low = kInfinity;
  for (double v : x) {
    const double a = std::abs(v);
    high = std::max(high, a);
    low = std::min(low, a);
    sum += p == 0 ? (a != 0 ? 1 : 0) : std::pow(a, p);
  }
  if (std::isinf(p)) return p > 0 ? high : low;
  return p == 0 ? sum : std::pow(sum, 1 / p);
}

struct Case {
  const char* name;
  double (*of)(const Values&);
};

const Case kCases[] = {
    {"sum", total},
    {"prod", [](const Values& x) { return std::accumulate(x.begin(), x.end(), 1.0, std::multiplies<>()); }},
    {"mean", [](const Values& x) { return total(x) / static_cast<double>(x.size()); }},
    {"max", [](const Values& x) { return *std::max_element(x.begin(), x.end()); }},
    {"min", [](const Values& x) { return *std::min_element(x.begin(), x.end()); }},
    {"argmax",
     [](const Values& x) { return static_cast<double>(std::max_element(x.begin(), x.end()) - x.begin()); }},
    {"argmin",
     [](const Values& x) { return static_cast<double>(std::min_element(x.begin(), x.end()) - x.begin()); }},
    {"any",
     [](const Values& x) -> double {
       return std::any_of(x.begin(), x.end(), [](double v) { return v != 0; });
     }},
    {"all",
     [](const Values& x) -> double {
       return std::all_of(x.begin(), x.end(), [](double v) { return v != 0; });
     }},
    {"count_nonzero",
     [](const Values& x) {
       return static_cast<double>(x.size()) - static_cast<double>(std::count(x.begin(), x.end(), 0.0));
     }},
    {"logsumexp",
     [](const Values& x) {
       double sum = 0;
       for (double v : x) sum += std::exp(v);
       return std::log(sum);
     }},
};

TEST(ReduceOp, AgreesWithAPlainLoopForAllSamplesAndTypes) {
  for (const Case& test : kCases)
    test::each_sample(test.name, [&](const Operator& op, const Sample& sample) {
      const bool total = op.attrs == &kAttrType<TotalAttrs>;
      const Shape& axes = total ? sample.attrs.get<TotalAttrs>().axes : sample.attrs.get<ReduceAttrs>().axes;
      const NDArray y = call(op, sample.attrs, sample.inputs)[0];
      test::expect_values(test::fold(sample.inputs[0], axes, test.of), y, sample.label, 8);
    });
  for (const char* name : {"var", "stddev"})
    test::each_sample(name, [&](const Operator& op, const Sample& sample) {
      const auto& attrs = sample.attrs.get<VarianceAttrs>();
      const auto of = [&](const Values& x) {
        const double v = variance(x, attrs.correction);
        return op.name() == std::string("var") ? v : std::sqrt(v);
      };
      const NDArray y = call(op, sample.attrs, sample.inputs)[0];
      test::expect_values(test::fold(sample.inputs[0], attrs.axes, of), y, sample.label, 8);
    });
  test::each_sample("norm", [&](const Operator& op, const Sample& sample) {
    const auto& attrs = sample.attrs.get<NormAttrs>();
    const NDArray y = call(op, sample.attrs, sample.inputs)[0];
    const auto of = [&](const Values& x) { return norm_of(x, attrs.p); };
    test::expect_values(test::fold(sample.inputs[0], attrs.axes, of), y, sample.label, 8);
  });
}

TEST(ReduceOp, TakesEveryLayoutAndSetOfAxes) {
  for (DType dtype : kAllDTypes) {
    const NDArray x = test::numbers({3, 4, 5}, dtype);
    for (const NDArray& view : test::layouts(x))
      for (const Axes& axes : {Axes{}, Axes{0}, Axes{1}, Axes{-1}, Axes{0, 2}, Axes{2, 1}, Axes{0, 1, 2}}) {
        const std::string what = std::string(to_string(dtype)) + to_string(view.strides()) + to_string(axes);
        test::expect_values(test::fold(x, axes, total), sum(view, axes), "sum" + what, 16);
        test::expect_values(test::fold(x, axes, kCases[3].of), max(view, axes, true), "max" + what);
        test::expect_values(test::fold(x, axes, kCases[6].of), argmin(view, axes), "argmin" + what);
        test::expect_values(test::fold(x, axes, [](const Values& v) { return norm_of(v, 2); }),
                            norm(view, 2, axes), "norm" + what, 4);
      }
  }
}

TEST(ReduceOp, AnAxisIsANumberAListOrNothing) {
  const NDArray x = arange(6).reshape({2, 3});
  EXPECT_EQ((Values{3, 12}), test::values(sum(x, 1)));
  EXPECT_EQ((Values{3, 12}), test::values(sum(x, {1})));
  EXPECT_EQ((Values{3, 12}), test::values(sum(x, Shape{-1})));
  EXPECT_EQ((Values{15}), test::values(sum(x)));
  EXPECT_EQ((Values{15}), test::values(sum(x, {}, true)));
  EXPECT_EQ((Values{15}), test::values(sum(x, {0, 1})));
  EXPECT_EQ((Shape{1, 1}), sum(x, {}, true).shape());
  EXPECT_EQ((Shape{2, 1}), sum(x, 1, true).shape());
  EXPECT_EQ((Shape{2}), sum(x, 1).shape());
  EXPECT_EQ((Shape{}), sum(x).shape());
}

TEST(ReduceOp, TypesOfResults) {
  for (DType dtype : kAllDTypes) {
    const NDArray x = ones({2}, dtype);
    const DType real = is_floating(dtype) ? dtype : f32, wide = is_floating(dtype) ? dtype : i64;
    EXPECT_EQ(wide, sum(x).dtype());
    EXPECT_EQ(wide, prod(x).dtype());
    EXPECT_EQ(dtype, max(x).dtype());
    EXPECT_EQ(i64, argmax(x).dtype());
    EXPECT_EQ(bool_, any(x).dtype());
    EXPECT_EQ(bool_, all(x).dtype());
    EXPECT_EQ(i64, count_nonzero(x).dtype());
    for (const NDArray& y : {mean(x), var(x), stddev(x), logsumexp(x), norm(x), norm(x, 3)})
      EXPECT_EQ(real, y.dtype());
  }
}

TEST(ReduceOp, IsComputedInTheTypeThatIsAskedFor) {
  // Sums beyond the ranges of f16 and i64, and differences below the precision of f32.
  EXPECT_EQ((Values{120000}), test::values(sum(full({4}, 30000, f16), {}, false, f32)));
  EXPECT_EQ((Values{0x1p64}), test::values(sum(full({4}, int64_t{1} << 62, i64), {}, false, f64)));
  EXPECT_EQ((Values{16777217}), test::values(sum(array({16777216.f, 1.f}), {}, false, f64)));
  EXPECT_EQ((Values{0x1p100}), test::values(prod(full({10}, 1024, i32), {}, false, f64)));
  EXPECT_EQ((Values{16777217}), test::values(mean(array({16777216.f, 16777218.f}), {}, false, f64)));
  // Elements are converted before the sum: 1 + 1, not 3.
  EXPECT_EQ((Values{2}), test::values(sum(array({1.5f, 1.5f}), {}, false, i32)));
  for (DType from : kAllDTypes)
    for (DType to : kAllDTypes) {
      const NDArray x = test::numbers({3, 40}, from);
      for (const NDArray& view : test::layouts(x)) {
        const std::string what =
            std::string(to_string(from)) + " in " + to_string(to) + to_string(view.strides());
        if (to != bool_) {
          const NDArray y = sum(view, 0, true, to);
          EXPECT_EQ(to, y.dtype());
          const auto of = [to](const Values& v) { return to == u8 ? std::fmod(total(v), 256) : total(v); };
          test::expect_values(test::fold(x.to(to), {0}, of), y.reshape({40}), "sum of " + what, 8);
        }
        if (is_floating(to))
          test::expect_values(test::fold(x.to(to), {0}, kCases[2].of), mean(view, 0, false, to),
                              "mean of " + what, 8);
      }
    }
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { mean(zeros({2}), {}, false, i32); }),
                       "[mean] expected a floating-point type for dtype, got i32"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { sum(zeros({2}), {}, false, bool_); }),
                       "[sum] expected a numeric type for dtype, got bool"));
}

TEST(ReduceOp, OfNothing) {
  const NDArray x = zeros({2, 0});
  test::expect_values({0, 0}, sum(x, 1), "sum");
  test::expect_values({}, sum(x, 0), "sum over the other axis");
  test::expect_values({1, 1}, prod(x, 1), "prod");
  test::expect_values({kNan, kNan}, mean(x, 1), "mean");
  test::expect_values({kNan}, var(x), "var");
  test::expect_values({-kInfinity}, logsumexp(x), "logsumexp");
  test::expect_values({0}, any(x), "any");
  test::expect_values({1}, all(x), "all");
  for (double p : {0., 1., 2., 3., kInfinity}) test::expect_values({0, 0}, norm(x, p, 1), "norm");
  EXPECT_EQ((Shape{0}), max(x, 0).shape());
  for (auto* f : {&max, &min, &argmax, &argmin})
    EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { f(x, 1, false); }), "at least one element"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { norm(x, -kInfinity, 1); }), "at least one element"));
}

TEST(ReduceOp, NotANumberAndInfinity) {
  const NDArray x = array({{1., kNan, 3.}, {kInfinity, 2., -kInfinity}});
  test::expect_values({kNan, kInfinity}, max(x, 1), "max");
  test::expect_values({kNan, -kInfinity}, min(x, 1), "min");
  test::expect_values({1, 0}, argmax(x, 1), "argmax");
  test::expect_values({kNan, kNan}, sum(x, 1), "sum");
  test::expect_values({kNan, kInfinity}, norm(x, kInfinity, 1), "norm");
  test::expect_values({kNan, kInfinity}, norm(x, 2, 1), "norm");
  test::expect_values({3, 3}, count_nonzero(x, 1), "count_nonzero");
}

TEST(ReduceOp, HalfPrecisionNormsDoNotOverflowOnTheWay) {
  const NDArray x = full({100}, 300, f16);
  EXPECT_EQ(3000.f, norm(x).item<float>());
  EXPECT_NEAR(1392.5, test::values(norm(x, 3))[0], 2);
  EXPECT_EQ(5e9f, norm(array<int64_t>({3'000'000'000, 4'000'000'000})).item<float>());
}

TEST(ReduceOp, ErrorsNameAxesAndPlace) {
  const NDArray x = zeros({2, 3});
  const std::string far = error_of<InvalidArgument>([&] { sum(x, 2); });
  EXPECT_TRUE(contains(far, "[sum] expected an axis from -2 to 1")) << far;
  EXPECT_TRUE(contains(far, "reduce_op_test.cc")) << far;
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] {
                         mean(x, {0, -2});
                       }),
                       "[mean] expected different axes"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { stddev(x, 5); }), "[stddev]"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { norm(x, kNan); }), "NaN"));
}

TEST(ReduceOp, LargeArraysGoThroughTheEngineWithTheSameResult) {
  const NDArray x = test::numbers({300, 500}, f64);
  test::expect_values(test::fold(x, {1}, total), sum(x, 1), "rows", 30);
  test::expect_values(test::fold(x, {0}, total), sum(x, 0), "columns", 30);
  test::expect_values(test::fold(x, {}, total), mean(x) * 150000., "all", 1000);
}

TEST(ReduceOp, LineOfTheDesignComputesCrossEntropyByHand) {
  const NDArray t = array({{1.f, 0.f}, {0.f, 1.f}}), y = array({{0.5f, 0.5f}, {0.25f, 0.75f}});
  EXPECT_NEAR((std::log(2.0) - std::log(0.75)) / 2, mean(-sum(t * log(y), 1)).item<float>(), 1e-6);
}

TEST(ScanOp, AgreesWithAPlainLoopForAllSamplesAndTypes) {
  const auto step = [](const std::string& name, double a, double x) {
    if (name == "cumsum") return a + x;
    if (name == "cumprod") return a * x;
    if (name == "cummax") return std::max(a, x);
    if (name == "cummin") return std::min(a, x);
    return std::log(std::exp(a) + std::exp(x));
  };
  for (const std::string name : {"cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"})
    test::each_sample(name.c_str(), [&](const Operator& op, const Sample& sample) {
      const ScanAttrs attrs = sample.attrs.get<ScanAttrs>();
      const NDArray& x = sample.inputs[0];
      const bool real = is_floating(x.dtype());
      double low = -kInfinity, high = kInfinity;
      if (!real) {
        low = x.dtype() == i64 ? -0x1p63 : x.dtype() == i32 ? -0x1p31 : x.dtype() == i8 ? -128 : 0;
        high = x.dtype() == i64   ? 0x1p63
               : x.dtype() == i32 ? 2147483647
               : x.dtype() == i8  ? 127
               : x.dtype() == u8  ? 255
                                  : 1;
      }
      const double first = name == "cumsum"    ? 0
                           : name == "cumprod" ? 1
                           : name == "cummax"  ? low
                           : name == "cummin"  ? high
                                               : -kInfinity;
      const int64_t n = x.size(attrs.axis);
      const int axis = normalize_axis(attrs.axis, x.rank(), "test");
      const int64_t stride = contiguous_strides(x.shape())[axis];
      const Values in = test::values(x);
      Values want(in.size());
      for (size_t i = 0; i < in.size(); ++i) {
        const int64_t own = static_cast<int64_t>(i) / stride % n;
        double state = first;
        const int64_t count = (attrs.reverse ? n - 1 - own : own) + (attrs.exclusive ? 0 : 1);
        for (int64_t k = 0; k < count; ++k) {
          const int64_t at = static_cast<int64_t>(i) + ((attrs.reverse ? n - 1 - k : k) - own) * stride;
          state = step(name, state, in[static_cast<size_t>(at)]);
        }
        want[i] = state;
      }
      // An integer wider than a double has no exact counterpart in the oracle, so compare as doubles.
      test::expect_values(want, call(op, sample.attrs, sample.inputs)[0], sample.label, 8);
    });
}

TEST(ScanOp, LinearRecurrenceRunsBothWays) {
  const NDArray a = array({{9., 2., 3.}, {1., 0., -1.}}), b = array({{1., 1., 1.}, {2., 3., 4.}});
  EXPECT_EQ((Values{1, 3, 10, 2, 3, 1}), test::values(linear_recurrence(a, b, 1)));
  EXPECT_EQ((Values{28, 3, 1, 5, 3, 4}), test::values(linear_recurrence(a, b, -1, true)));
  EXPECT_EQ((Values{1, 1, 1, 3, 3, 3}), test::values(linear_recurrence(a, b)));
  EXPECT_EQ(f64, linear_recurrence(a, b.to(f32)).dtype());
  EXPECT_EQ(5., linear_recurrence(full({}, 2, f64), full({}, 5, f64)).item<double>());
  EXPECT_TRUE(
      contains(error_of<InvalidArgument>([&] { linear_recurrence(a, b[0]); }), "a and b of the same shape"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] {
                         linear_recurrence(a, arange(6).reshape({2, 3}));
                       }),
                       "i64"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { linear_recurrence(a, b, 2); }), "axis"));
}

TEST(ScanOp, PublicFunctionsPassTheirOptions) {
  const NDArray x = array<int64_t>({{1, 2, 3}, {4, 5, 6}});
  EXPECT_EQ((Values{1, 3, 6, 4, 9, 15}), test::values(cumsum(x, 1)));
  EXPECT_EQ((Values{0, 1, 3, 0, 4, 9}), test::values(cumsum(x, -1, true)));
  EXPECT_EQ((Values{6, 5, 3, 15, 11, 6}), test::values(cumsum(x, 1, false, true)));
  EXPECT_EQ((Values{1, 2, 3, 4, 10, 18}), test::values(cumprod(x)));
  EXPECT_EQ((Values{1, 2, 3, 4, 5, 6}), test::values(cummax(x)));
  EXPECT_EQ((Values{1, 2, 3, 1, 2, 3}), test::values(cummin(x)));
  EXPECT_EQ(f32, logcumsumexp(x).dtype());
  EXPECT_EQ((Shape{0, 3}), cumsum(zeros({0, 3})).shape());
  EXPECT_EQ(5., cumsum(full({}, 5, f64)).item<double>());
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { cumsum(x, 2); }), "[cumsum] expected an axis"));
}

// A requested type of i32 or u8 wraps; f64 is not rounded to f32 on the way.
TEST(ScanOp, TotalsInATypeThatIsAskedFor) {
  const NDArray x = array<uint8_t>({200, 100, 3});
  EXPECT_EQ((Values{200, 44, 47}), test::values(cumsum(x, 0, false, false, u8)));
  EXPECT_EQ((Values{200, 32, 96}), test::values(cumprod(x, 0, false, false, u8)));
  EXPECT_EQ((Values{200, 300, 303}), test::values(cumsum(x, 0, false, false, i32)));
  EXPECT_EQ((Values{103, 3, 0}), test::values(cumsum(x, 0, true, true, i32)));
  const NDArray y = array({16777216.f, 1.f, 1.75f});
  EXPECT_EQ((Values{16777216, 16777217, 16777218.75}), test::values(cumsum(y, 0, false, false, f64)));
  EXPECT_EQ((Values{16777216, 16777217, 16777218}), test::values(cumsum(y, 0, false, false, i64)));
  for (const DType dtype : {i8, u8, i32, i64, f16, bf16, f32, f64}) {
    EXPECT_EQ(dtype, cumsum(x, 0, false, false, dtype).dtype());
    EXPECT_EQ(dtype, cumprod(y, 0, false, false, dtype).dtype());
  }
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { cumprod(x, 0, false, false, bool_); }),
                       "[cumprod] expected a numeric type for dtype, got bool"));
}

}  // namespace
}  // namespace mx
