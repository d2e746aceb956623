// Reductions compared with plain loops in float64.
#include "operators/kernels/reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/error.h"
#include "ndarray/kernels/copy.h"
#include "tests/support/errors.h"
#include "tests/support/numbers.h"
#include "tests/support/tensors.h"
#include "tests/support/thread_limit.h"

namespace mx {
namespace {

using kernels::ReduceOp;
using test::Array;

constexpr ReduceOp kReductions[] = {
    ReduceOp::sum,     ReduceOp::prod,          ReduceOp::mean,        ReduceOp::max,
    ReduceOp::min,     ReduceOp::argmax,        ReduceOp::argmin,      ReduceOp::any,
    ReduceOp::all,     ReduceOp::count_nonzero, ReduceOp::sum_squares, ReduceOp::sum_abs,
    ReduceOp::max_abs, ReduceOp::logsumexp,     ReduceOp::var,         ReduceOp::std};
using test::kInf;
const double kNaN = std::nan("");

// Returns, for each output, the elements it depends on, in row-major order.
std::vector<std::vector<double>> groups(const Array& in, const Shape& axes) {
  const Shape out = kernels::reduce_shape(ReduceOp::sum, in.t.shape, axes, true);
  const Strides strides = contiguous_strides(out);
  std::vector<std::vector<double>> result(static_cast<size_t>(out.numel()));
  for (int64_t i = 0; i < in.t.numel(); ++i) {
    int64_t rest = i, at = 0;
    for (int d = in.t.rank() - 1; d >= 0; --d) {
      if (out[d] == in.t.shape[d]) at += rest % in.t.shape[d] * strides[d];
      rest /= in.t.shape[d];
    }
    result[static_cast<size_t>(at)].push_back(in.get(i));
  }
  return result;
}

double oracle(ReduceOp op, const std::vector<double>& x, double correction) {
  const double n = static_cast<double>(x.size());
  double sum = 0, prod = 1, squares = 0, sizes = 0, nonzero = 0, most = 0;
  size_t top = 0, low = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    sum += x[i], prod *= x[i], squares += x[i] * x[i], sizes += std::abs(x[i]), nonzero += x[i] != 0;
    most = std::isnan(x[i]) || std::isnan(most) ? kNaN : std::max(most, std::abs(x[i]));
    if (!std::isnan(x[top]) && (x[i] > x[top] || std::isnan(x[i]))) top = i;
    if (!std::isnan(x[low]) && (x[i] < x[low] || std::isnan(x[i]))) low = i;
  }
  double spread = 0, exps = 0;
  for (double v : x) {
    spread += (v - sum / n) * (v - sum / n);
    exps += std::isinf(x[top]) ? 0 : std::exp(v - x[top]);
  }
  switch (op) {
    case ReduceOp::sum:
      return sum;
    case ReduceOp::prod:
      return prod;
    case ReduceOp::mean:
      return sum / n;
    case ReduceOp::max:
      return x[top];
    case ReduceOp::min:
      return x[low];
    case ReduceOp::argmax:
      return static_cast<double>(top);
    case ReduceOp::argmin:
      return static_cast<double>(low);
    case ReduceOp::any:
      return nonzero > 0;
    case ReduceOp::all:
      return nonzero == n;
    case ReduceOp::count_nonzero:
      return nonzero;
    case ReduceOp::sum_squares:
      return squares;
    case ReduceOp::sum_abs:
      return sizes;
    case ReduceOp::max_abs:
      return most;
    case ReduceOp::logsumexp:
      return std::isinf(x[top]) || std::isnan(x[top]) ? x[top] : x[top] + std::log(exps);
    case ReduceOp::var:
      return spread / std::max(0.0, n - correction);
    case ReduceOp::std:
      return std::sqrt(spread / std::max(0.0, n - correction));
  }
  return 0;
}

// `room` is the magnitude of the summands: after cancellation the sum may be smaller than its error.
void expect_near(double expected, double got, double tolerance, double room, const std::string& what) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(got)) << what << " expected NaN, got " << got;
  } else if (std::isinf(expected)) {
    EXPECT_EQ(expected, got) << what;
  } else {
    EXPECT_NEAR(expected, got, tolerance * std::max(room, std::abs(expected)) + tolerance * 1e-3) << what;
  }
}

void check(ReduceOp op, const Array& in, const Shape& axes, bool keep,
           const std::string& out_layout = "contiguous") {
  const DType type = kernels::reduce_result(op, in.t.dtype);
  Array out(type, kernels::reduce_shape(op, in.t.shape, axes, keep), out_layout);
  kernels::reduce(op, out.t, in.t, axes);
  const auto parts = groups(in, axes);
  ASSERT_EQ(static_cast<int64_t>(parts.size()), out.t.numel());
  for (size_t i = 0; i < parts.size(); ++i) {
    const bool index = op == ReduceOp::argmax || op == ReduceOp::argmin;
    const double sizes = index ? 0 : oracle(ReduceOp::sum_abs, parts[i], 0);
    const bool averaged = op == ReduceOp::mean || op == ReduceOp::var || op == ReduceOp::std;
    expect_near(oracle(op, parts[i], 1), out.get(static_cast<int64_t>(i)), test::tolerance(type),
                std::isfinite(sizes) && op == ReduceOp::sum ? sizes
                : averaged                                  ? 1
                                                            : 0,
                std::string(kernels::to_string(op)) + " of " + to_string(in.t.dtype) + " " +
                    to_string(in.t.shape) + " over " + to_string(axes) + ", output " + std::to_string(i));
  }
}

TEST(Reduce, AgreesWithAPlainLoopForAllTypesLayoutsAndAxes) {
  const Shape shape{3, 20, 17};
  const std::vector<Shape> all_axes = {{}, {0}, {1}, {2}, {0, 1}, {0, 2}, {-1, -2}, {0, 1, 2}};
  for (DType type : kAllDTypes) {
    for (const char* layout : test::kLayouts) {
      Array in(type, shape, layout);
      in.fill_random(7);
      for (ReduceOp op : kReductions) {
        // A product of many numbers overflows every range; a separate test covers it.
        if (op == ReduceOp::prod) continue;
        // An output with a broadcast layout would be written twice at the same place.
        const std::string out_layout = layout == std::string("broadcast") ? "contiguous" : layout;
        for (const Shape& axes : all_axes) check(op, in, axes, axes.rank() % 2 == 0, out_layout);
      }
    }
  }
}

// Results along a kept dimension of stride 0 are equal: one is computed, and the others are copies of it.
TEST(Reduce, ResultsAlongDimensionsOfStrideZeroAreThoseOfOneOfThem) {
  struct Case {
    Shape shape, axes, repeated;  // `repeated` are the dimensions of stride 0
  };
  const Case cases[] = {{{2, 9, 3, 20}, {0, 2}, {0, 1, 2, 3}}, {{2, 9, 3, 20}, {0, 2}, {0, 2, 3}},
                        {{2, 9, 3, 20}, {0, 2}, {0, 1}},       {{4, 3, 1100}, {2}, {0}},
                        {{4, 3, 1100}, {2}, {0, 1}},           {{3, 150, 17, 2}, {1}, {0, 3}},
                        {{3, 70, 17, 2}, {1, 2}, {0, 1, 3}},   {{2, 3, 4}, {1}, {0, 2}}};
  for (DType type : {f32, f64, f16, i32, bool_}) {
    for (const auto& [shape, axes, repeated] : cases) {
      Array in(type, shape);
      in.fill_random(7);
      for (int64_t d : repeated) in.t.strides[static_cast<int>(d)] = 0;
      // One result along each repeated dimension that stays.
      Tensor one = in.t;
      for (int64_t d : repeated)
        if (std::find(axes.begin(), axes.end(), d) == axes.end()) one.shape[static_cast<int>(d)] = 1;
      for (ReduceOp op : kReductions) {
        if (op == ReduceOp::prod) continue;
        for (const char* layout : {"contiguous", "transposed", "negative", "padded"})
          for (bool keep : {false, true}) check(op, in, axes, keep, layout);
        const DType result = kernels::reduce_result(op, type);
        Array all(result, kernels::reduce_shape(op, shape, axes, true));
        Array first(result, kernels::reduce_shape(op, one.shape, axes, true));
        kernels::reduce(op, all.t, in.t, axes);
        kernels::reduce(op, first.t, one, axes);
        const Tensor same = first.t.broadcast(all.t.shape);
        Array copies(result, all.t.shape);
        kernels::copy(copies.t, same);
        EXPECT_TRUE(all.same_bits(copies)) << kernels::to_string(op) << ' ' << type << ' ' << shape << axes;
      }
    }
  }
}

TEST(Reduce, ProductsAgreeWithAPlainLoop) {
  for (DType type : {f32, f64, f16, bf16}) {
    for (const Shape& axes : {Shape{}, Shape{0}, Shape{1}}) {
      Array in(type, {19, 33});
      std::mt19937_64 engine(3);
      in.fill([&](int64_t) { return engine() % 2 ? 1.0625 : -0.9375; });
      check(ReduceOp::prod, in, axes, false);
    }
  }
  Array in(i32, {3, 4});
  in.fill([](int64_t i) { return static_cast<double>(i % 5) - 6; });
  for (const Shape& axes : {Shape{}, Shape{0}, Shape{1}}) check(ReduceOp::prod, in, axes, true);
}

TEST(Reduce, PiecesOfEverySizeCountOnce) {
  // Sizes around those of vectors, pieces and tasks.
  for (int64_t n :
       {1, 2, 3, 15, 16, 17, 63, 64, 65, 127, 128, 1023, 1024, 1025, 4097, 65535, 65536, 65537, 200000}) {
    for (DType type : {f32, f64, i32, bool_}) {
      Array in(type, {n});
      in.fill([](int64_t i) { return static_cast<double>(i % 3); });
      Array out(kernels::reduce_result(ReduceOp::sum, type), {});
      kernels::reduce(ReduceOp::sum, out.t, in.t, {0});
      double expected = 0;
      for (double v : in.values()) expected += v;
      EXPECT_EQ(expected, out.get(0)) << n << to_string(type);
      Array place(i64, {});
      in.fill([n](int64_t i) { return i == n - 1; });
      kernels::reduce(ReduceOp::argmax, place.t, in.t, {});
      EXPECT_EQ(static_cast<double>(n - 1), place.get(0)) << n << to_string(type);
      kernels::reduce(ReduceOp::argmin, place.t, in.t, {});
      EXPECT_EQ(0.0, place.get(0)) << n << to_string(type);
    }
    for (int64_t width : {16, 40, 1030}) {
      if (n * width > 2'000'000) continue;
      Array in(f32, {n, width}), out(f32, {width});
      in.fill([](int64_t i) { return static_cast<double>(i % 3); });
      check(ReduceOp::sum, in, {0}, false);
      check(ReduceOp::var, in, {0}, false);
      check(ReduceOp::argmax, in, {0}, false);
      check(ReduceOp::logsumexp, in, {0}, false);
    }
  }
}

TEST(Reduce, RankZeroReducesItsOneElement) {
  Array in(f32, {}), out(f32, {});
  in.set(0, -3);
  for (ReduceOp op : kReductions) {
    Array result(kernels::reduce_result(op, f32), {});
    kernels::reduce(op, result.t, in.t, {});
    expect_near(oracle(op, {-3}, 1), result.get(0), 1e-6, 0, kernels::to_string(op));
  }
}

TEST(Reduce, OfNothingGivesTheNeutralElementOrThrows) {
  Array in(f32, {2, 0, 3});
  const std::pair<ReduceOp, double> expected[] = {
      {ReduceOp::sum, 0},           {ReduceOp::prod, 1},    {ReduceOp::mean, kNaN},
      {ReduceOp::any, 0},           {ReduceOp::all, 1},     {ReduceOp::count_nonzero, 0},
      {ReduceOp::sum_squares, 0},   {ReduceOp::sum_abs, 0}, {ReduceOp::max_abs, 0},
      {ReduceOp::logsumexp, -kInf}, {ReduceOp::var, kNaN},  {ReduceOp::std, kNaN}};
  for (DType type : {f32, f64, i32}) {
    Array empty(type, {2, 0, 3});
    for (const auto& [op, value] : expected) {
      Array out(kernels::reduce_result(op, type), {2, 3});
      out.fill([](int64_t) { return 77; });
      kernels::reduce(op, out.t, empty.t, {1});
      for (double v : out.values()) expect_near(value, v, 0, 0, kernels::to_string(op));
    }
  }
  Array out(f32, {2, 3});
  for (ReduceOp op : {ReduceOp::max, ReduceOp::min, ReduceOp::argmax, ReduceOp::argmin}) {
    const std::string message =
        test::error_of<InvalidArgument>([&] { kernels::reduce(op, out.t, in.t, {1}); });
    EXPECT_TRUE(test::contains(message, "(2, 0, 3)") && test::contains(message, "(1,)")) << message;
    EXPECT_TRUE(test::contains(message, kernels::to_string(op))) << message;
  }
  Array none(f32, {0, 3});
  // No outputs, so no elements are missing.
  kernels::reduce(ReduceOp::max, none.t, Array(f32, {0, 5, 3}).t, {1});
}

TEST(Reduce, WrongShapesAndAxesAreRefusedWithBothShapes) {
  Array in(f32, {2, 3}), out(f32, {3});
  const std::string message =
      test::error_of<InvalidArgument>([&] { kernels::reduce(ReduceOp::sum, out.t, in.t, {1}); });
  EXPECT_TRUE(test::contains(message, "(2,)") && test::contains(message, "(2, 1)") &&
              test::contains(message, "got (3,)"))
      << message;
  test::error_of<InvalidArgument>([&] { kernels::reduce(ReduceOp::sum, out.t, in.t, {2}); });
  test::error_of<InvalidArgument>([&] { kernels::reduce(ReduceOp::sum, out.t, in.t, {0, -2}); });
}

TEST(Reduce, NaNAndInfinityCarryOver) {
  for (DType type : {f32, f64, f16, bf16}) {
    for (int64_t bad : {0, 31, 600}) {
      for (double value : {kNaN, kInf, -kInf}) {
        Array in(type, {601, 20});
        in.fill([&](int64_t i) { return i == bad * 20 + 7 ? value : static_cast<double>(i % 11) - 5; });
        for (ReduceOp op : {ReduceOp::max, ReduceOp::min, ReduceOp::argmax, ReduceOp::argmin,
                            ReduceOp::max_abs, ReduceOp::logsumexp, ReduceOp::any, ReduceOp::all}) {
          for (const Shape& axes : {Shape{}, Shape{0}, Shape{1}}) check(op, in, axes, false);
        }
        Array sums(f32, {20});
        kernels::reduce(ReduceOp::sum, sums.t, in.t, {0});
        expect_near(value, sums.get(7), 0, 0, "sum");
        EXPECT_TRUE(std::isfinite(sums.get(6)));
      }
    }
    Array low(type, {40, 40});
    low.fill([](int64_t) { return -kInf; });
    for (const Shape& axes : {Shape{}, Shape{0}, Shape{1}}) check(ReduceOp::logsumexp, low, axes, false);
  }
}

TEST(Reduce, TheFirstOfEqualsWins) {
  for (DType type : kAllDTypes) {
    Array in(type, {5000, 20});
    in.fill([](int64_t) { return 1; });
    for (const Shape& axes : {Shape{}, Shape{0}, Shape{1}}) {
      Array out(i64, kernels::reduce_shape(ReduceOp::argmax, in.t.shape, axes, false));
      for (ReduceOp op : {ReduceOp::argmax, ReduceOp::argmin}) {
        out.fill([](int64_t) { return 5; });
        kernels::reduce(op, out.t, in.t, axes);
        for (double v : out.values()) EXPECT_EQ(0.0, v);
      }
    }
  }
  Array zeros(f32, {2000});
  zeros.fill([](int64_t i) { return i % 2 ? 0.0 : -0.0; });
  Array out(i64, {});
  kernels::reduce(ReduceOp::argmax, out.t, zeros.t, {});
  EXPECT_EQ(0.0, out.get(0));
}

TEST(Reduce, NaNIsNotZero) {
  for (DType type : {f32, f64, f16, bf16}) {
    for (int64_t bad : {0, 7, 31, 39}) {
      for (double rest : {0.0, -0.0, 1.0}) {
        Array in(type, {3, 40});
        in.fill([&](int64_t i) { return i == 40 + bad ? kNaN : rest; });
        for (ReduceOp op : {ReduceOp::any, ReduceOp::all, ReduceOp::count_nonzero})
          for (const Shape& axes : {Shape{}, Shape{0}, Shape{1}}) check(op, in, axes, false);
      }
    }
  }
}

TEST(Reduce, TheErrorOfALongSumIsThatOfATree) {
  const int64_t n = 10'000'000;
  Array in(f32, {n}), column(f32, {n / 20, 20});
  std::mt19937_64 engine(11);
  float* x = in.t.as<float>();
  double exact = 0, spread = 0;
  for (int64_t i = 0; i < n; ++i) exact += x[i] = static_cast<float>(engine() >> 40) * 0x1p-24f;
  for (int64_t i = 0; i < n; ++i) spread += (x[i] - exact / n) * (x[i] - exact / n);
  Array out(f32, {}), sums(f32, {20}), total(f64, {});
  kernels::reduce(ReduceOp::sum, out.t, in.t, {});
  EXPECT_NEAR(exact, out.get(0), exact * 4e-7);
  kernels::reduce(ReduceOp::mean, out.t, in.t, {});
  EXPECT_NEAR(exact / n, out.get(0), 4e-7);
  kernels::reduce(ReduceOp::var, out.t, in.t, {});
  EXPECT_NEAR(spread / (n - 1), out.get(0), 4e-7);
  std::memcpy(column.t.data, x, static_cast<size_t>(n) * 4);
  kernels::reduce(ReduceOp::sum, sums.t, column.t, {0});
  kernels::reduce(ReduceOp::sum, total.t, sums.t, {});
  EXPECT_NEAR(exact, total.get(0), exact * 4e-7);
  // A plain loop in float32 has a large error, so the bound above is meaningful.
  float plain = 0;
  for (int64_t i = 0; i < n; ++i) plain += x[i];
  EXPECT_GT(std::abs(plain - exact), exact * 4e-6);
}

TEST(Reduce, TheVarianceOfAFarOffsetSurvives) {
  Array in(f32, {100'000}), out(f32, {});
  in.fill([](int64_t i) { return 10000 + (i % 2 ? 1 : -1); });
  kernels::reduce(ReduceOp::var, out.t, in.t, {}, {.correction = 0});
  EXPECT_NEAR(1, out.get(0), 1e-4);
  Array one(f32, {1});
  one.set(0, 5);
  kernels::reduce(ReduceOp::var, out.t, one.t, {});
  EXPECT_TRUE(std::isnan(out.get(0)));
  kernels::reduce(ReduceOp::std, out.t, one.t, {}, {.correction = 0});
  EXPECT_EQ(0.0, out.get(0));
}

// Numbers in the types' own precision, so their exact variance is known; by rows, by columns with and without
// a rest, and over all of the array, with few and with many pieces.
TEST(Reduce, TheVarianceOfNumbersFarFromZeroIsAsExactAsThatOfNumbersNearZero) {
  struct Case {
    DType type;
    double mean, step;
  };
  for (const auto& [type, mean, step] : {Case{f32, 65536, 0.0078125}, Case{f32, 1e6, 0.0625},
                                         Case{f32, -1.6e7, 1}, Case{f16, 1024, 1}, Case{bf16, 128, 1}}) {
    for (const Shape& shape :
         {Shape{7, 5}, Shape{100, 33}, Shape{2000, 16}, Shape{33, 1100}, Shape{70, 3000}}) {
      Array in(type, shape);
      std::mt19937_64 engine(5);
      std::vector<double> x(static_cast<size_t>(shape.numel()));
      for (double& value : x) value = mean + step * static_cast<double>(engine() % 64);
      in.fill([&](int64_t i) { return x[static_cast<size_t>(i)]; });
      const auto variance = [&](int64_t first, int64_t n, int64_t stride) {
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < n; ++i) sum += x[static_cast<size_t>(first + i * stride)] - mean;
        for (int64_t i = 0; i < n; ++i) {
          const double distance =
              x[static_cast<size_t>(first + i * stride)] - mean - sum / static_cast<double>(n);
          squares += distance * distance;
        }
        return squares / static_cast<double>(n - 1);
      };
      const int64_t rows = shape[0], columns = shape[1];
      // f16 and bf16 round the result.
      const double bound = type == f32 ? 1e-6 : type == f16 ? 6e-4 : 5e-3;
      const auto near = [&](double wanted, double got) {
        EXPECT_NEAR(wanted, got, bound * wanted) << type << ' ' << shape << " about " << mean;
      };
      Array by_rows(type, {rows}), by_columns(type, {columns}), all(type, {});
      kernels::reduce(ReduceOp::var, by_rows.t, in.t, {1});
      kernels::reduce(ReduceOp::var, by_columns.t, in.t, {0});
      kernels::reduce(ReduceOp::var, all.t, in.t, {});
      for (int64_t r = 0; r < rows; ++r) near(variance(r * columns, columns, 1), by_rows.get(r));
      for (int64_t c = 0; c < columns; ++c) near(variance(c, rows, columns), by_columns.get(c));
      near(variance(0, rows * columns, 1), all.get(0));
    }
  }
}

TEST(Reduce, TheVarianceOfNumbersNearTheEndOfTheRangeIsInfiniteAndNotNaN) {
  for (const Shape& shape : {Shape{2, 40}, Shape{40, 2}}) {
    Array in(f32, shape), rows(f32, {shape[0]}), columns(f32, {shape[1]}), all(f32, {});
    in.fill([&](int64_t i) { return (i / shape[1] + i % shape[1]) % 2 == 0 ? 3e38 : -3e38; });
    kernels::reduce(ReduceOp::var, rows.t, in.t, {1});
    kernels::reduce(ReduceOp::var, columns.t, in.t, {0});
    kernels::reduce(ReduceOp::var, all.t, in.t, {});
    EXPECT_EQ(kInf, all.get(0));
    for (int64_t i = 0; i < shape[0]; ++i) EXPECT_EQ(kInf, rows.get(i)) << shape;
    for (int64_t i = 0; i < shape[1]; ++i) EXPECT_EQ(kInf, columns.get(i)) << shape;
  }
}

TEST(Reduce, IntegersAreExactInSixtyFourBits) {
  Array in(i32, {100'000}), out(i64, {}), mean(f32, {});
  in.fill([](int64_t) { return 2147483647; });
  kernels::reduce(ReduceOp::sum, out.t, in.t, {});
  EXPECT_EQ(int64_t{2147483647} * 100'000, out.t.as<int64_t>()[0]);
  kernels::reduce(ReduceOp::mean, mean.t, in.t, {});
  EXPECT_EQ(2147483648.f, mean.t.as<float>()[0]);
  Array low(i64, {1});
  low.t.as<int64_t>()[0] = INT64_MIN;
  kernels::reduce(ReduceOp::max, out.t, low.t, {});
  EXPECT_EQ(INT64_MIN, out.t.as<int64_t>()[0]);
}

TEST(Reduce, ResultsDoNotDependOnTheNumberOfThreads) {
  for (const Shape& shape : {Shape{1'000'003}, Shape{3000, 333}, Shape{33, 40, 777}, Shape{400'000, 3}}) {
    Array in(f32, shape);
    in.fill_random(5);
    for (ReduceOp op :
         {ReduceOp::sum, ReduceOp::prod, ReduceOp::var, ReduceOp::logsumexp, ReduceOp::argmax}) {
      for (int64_t axis = -1; axis < shape.rank(); ++axis) {
        const Shape axes = axis < 0 ? Shape{} : Shape{axis};
        const Shape result = kernels::reduce_shape(op, shape, axes, false);
        Array one(kernels::reduce_result(op, f32), result), two(kernels::reduce_result(op, f32), result);
        test::with_threads(1, [&] { kernels::reduce(op, one.t, in.t, axes); });
        test::with_threads(2, [&] { kernels::reduce(op, two.t, in.t, axes); });
        EXPECT_TRUE(one.same_bits(two)) << kernels::to_string(op) << shape << axis;
      }
    }
  }
}

TEST(Reduce, AWiderOutputKeepsWhatTheSumKnows) {
  Array in(f16, {10'000}), out(f32, {});
  in.fill([](int64_t) { return 100; });
  kernels::reduce(ReduceOp::sum, out.t, in.t, {});
  EXPECT_EQ(1e6, out.get(0));
}

}  // namespace
}  // namespace mx
