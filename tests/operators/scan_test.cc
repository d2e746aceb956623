// Scans compared with plain loops.
#include "operators/kernels/scan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/numbers.h"
#include "tests/support/tensors.h"
#include "tests/support/thread_limit.h"

namespace mx {
namespace {

using kernels::ScanOp;
using test::Array;

constexpr ScanOp kScans[] = {ScanOp::cumsum, ScanOp::cumprod, ScanOp::cummax, ScanOp::cummin,
                             ScanOp::logcumsumexp};
using test::kInf;

double step(ScanOp op, double a, double x) {
  switch (op) {
    case ScanOp::cumsum:
      return a + x;
    case ScanOp::cumprod:
      return a * x;
    case ScanOp::cummax:
      return std::isnan(a) || std::isnan(x) ? std::nan("") : std::max(a, x);
    case ScanOp::cummin:
      return std::isnan(a) || std::isnan(x) ? std::nan("") : std::min(a, x);
    case ScanOp::logcumsumexp:
      break;
  }
  return a == -kInf ? x : std::log(std::exp(a) + std::exp(x));
}

double neutral(ScanOp op) {
  constexpr double values[] = {0, 1, -std::numeric_limits<double>::infinity(),
                               std::numeric_limits<double>::infinity(),
                               -std::numeric_limits<double>::infinity()};
  return values[static_cast<int>(op)];
}

std::vector<double> expected(ScanOp op, const Array& in, int axis, const kernels::ScanOptions& options) {
  std::vector<double> result(static_cast<size_t>(in.t.numel()));
  const Shape& shape = in.t.shape;
  const int64_t stride = shape.rank() == 0 ? 1 : contiguous_strides(shape)[axis],
                n = shape.rank() == 0 ? 1 : shape[axis];
  for (int64_t i = 0; i < in.t.numel(); ++i) {
    if (i / stride % n != 0) continue;
    double total = neutral(op);
    for (int64_t k = 0; k < n; ++k) {
      const int64_t at = i + (options.reverse ? n - 1 - k : k) * stride;
      const double next = step(op, total, in.get(at));
      result[static_cast<size_t>(at)] = options.exclusive ? total : next;
      total = next;
    }
  }
  return result;
}

void expect_same(const std::vector<double>& want, const Array& got, double tolerance,
                 const std::string& what) {
  for (size_t i = 0; i < want.size(); ++i) {
    const double value = got.get(static_cast<int64_t>(i));
    if (std::isnan(want[i])) {
      ASSERT_TRUE(std::isnan(value)) << what << i;
    } else if (std::isinf(want[i])) {
      ASSERT_EQ(want[i], value) << what << i;
    } else {
      ASSERT_NEAR(want[i], value, tolerance * std::max(1.0, std::abs(want[i]))) << what << i;
    }
  }
}

TEST(Scan, AgreesWithAPlainLoopForAllTypesLayoutsAxesAndOptions) {
  for (DType type : kAllDTypes) {
    for (const char* layout : test::kLayouts) {
      Array in(type, {3, 8, 19}, layout);
      in.fill_random(3);
      for (ScanOp op : kScans) {
        // Integers overflow, and their neutral elements are not infinite; separate tests cover them.
        if (op == ScanOp::cumprod && !is_floating(type)) continue;
        for (int flags = 0; flags < 4; ++flags) {
          const kernels::ScanOptions options{(flags & 1) != 0, (flags & 2) != 0};
          if (options.exclusive && !is_floating(type) && op != ScanOp::cumsum) continue;
          for (int axis = 0; axis < 3; ++axis) {
            Array out(kernels::scan_result(op, type), in.t.shape,
                      std::string(layout) == "broadcast" ? "padded" : layout);
            kernels::scan(op, out.t, in.t, axis, options);
            expect_same(expected(op, in, axis, options), out, test::tolerance(out.t.dtype),
                        std::string(kernels::to_string(op)) + to_string(type) + layout);
          }
        }
      }
    }
  }
}

TEST(Scan, LongRowsAreCarriedFromPieceToPiece) {
  for (int64_t n : {65535, 65536, 65537, 131072, 200'001}) {
    Array in(i32, {2, n}), out(i64, {2, n});
    in.fill([](int64_t i) { return static_cast<double>(i % 7) - 2; });
    for (int flags = 0; flags < 4; ++flags) {
      const kernels::ScanOptions options{(flags & 1) != 0, (flags & 2) != 0};
      kernels::scan(ScanOp::cumsum, out.t, in.t, 1, options);
      expect_same(expected(ScanOp::cumsum, in, 1, options), out, 0, "cumsum");
    }
    Array x(f32, {n}), y(f32, {n});
    x.fill_random(1);
    x.set(n - 3, std::nan(""));
    for (ScanOp op : {ScanOp::cumsum, ScanOp::cummax, ScanOp::cummin}) {
      kernels::scan(op, y.t, x.t, 0);
      expect_same(expected(op, x, 0, {}), y, 1e-6, kernels::to_string(op));
    }
  }
}

// The product of a piece overflows, although no requested result does.
TEST(Scan, LongProductsAreThoseOfTheElementsBefore) {
  const int64_t n = 200'000;
  Array x(f64, {n}), y(f64, {n});
  x.fill([](int64_t i) { return i == 1000 ? 0. : i % 2 == 0 ? 0.5 : 2.; });
  kernels::scan(ScanOp::cumprod, y.t, x.t, 0);
  expect_same(expected(ScanOp::cumprod, x, 0, {}), y, 0, "of halves and twos");
  x.fill([](int64_t i) { return i == 1000 ? 0. : 2.; });
  kernels::scan(ScanOp::cumprod, y.t, x.t, 0);
  for (int64_t i : {1000, 65'536, 131'072, 199'999}) EXPECT_EQ(0, y.get(i)) << i;
}

TEST(Scan, NeutralElementsOfIntegersAreTheEndsOfTheRange) {
  Array in(i64, {2}), out(i64, {2});
  in.fill([](int64_t) { return 5; });
  kernels::scan(ScanOp::cummax, out.t, in.t, 0, {.exclusive = true});
  EXPECT_EQ(INT64_MIN, out.t.as<int64_t>()[0]);
  EXPECT_EQ(5, out.t.as<int64_t>()[1]);
  kernels::scan(ScanOp::cummin, out.t, in.t, 0, {.exclusive = true});
  EXPECT_EQ(INT64_MAX, out.t.as<int64_t>()[0]);
  kernels::scan(ScanOp::cumprod, out.t, in.t, 0);
  EXPECT_EQ(25, out.t.as<int64_t>()[1]);
}

TEST(LinearRecurrence, AgreesWithAPlainLoopForAllTypesLayoutsAxesAndDirections) {
  const Shape shape{3, 8, 19};
  for (DType type : {f32, f64, f16, bf16}) {
    for (const char* layout : test::kLayouts) {
      Array a(type, shape, layout), b(type, shape, layout);
      a.fill_random(3);
      b.fill_random(4);
      const std::string own = std::string(layout) == "broadcast" ? "padded" : layout;
      for (bool reverse : {false, true}) {
        for (int axis = 0; axis < 3; ++axis) {
          Array out(type, shape, own);
          kernels::linear_recurrence(out.t, a.t, b.t, axis - 3, reverse);
          const int64_t stride = contiguous_strides(shape)[axis], n = shape[axis];
          std::vector<double> want(static_cast<size_t>(shape.numel()));
          for (int64_t i = 0; i < shape.numel(); ++i) {
            if (i / stride % n != 0) continue;
            double y = 0;
            for (int64_t k = 0; k < n; ++k) {
              const int64_t at = i + (reverse ? n - 1 - k : k) * stride;
              y = (k == 0 ? 0 : a.get(at) * y) + b.get(at);
              want[static_cast<size_t>(at)] = y;
            }
          }
          expect_same(want, out, test::tolerance(type), std::string(to_string(type)) + layout);
        }
      }
    }
  }
}

TEST(LinearRecurrence, DoesNotReadTheFirstFactorAndWorksInPlace) {
  Array a(f64, {3}), b(f64, {3});
  a.fill([](int64_t i) { return i == 0 ? std::nan("") : 2; });
  b.fill([](int64_t i) { return static_cast<double>(i + 1); });
  kernels::linear_recurrence(b.t, a.t, b.t, 0);
  expect_same({1, 4, 11}, b, 0, "into the terms");
  Array empty(f32, {0, 2});
  kernels::linear_recurrence(empty.t, empty.t, empty.t, 0);
  Array other(f64, {2});
  EXPECT_THROW(kernels::linear_recurrence(b.t, a.t, other.t, 0), InvalidArgument);
  Array whole(i64, {3});
  EXPECT_THROW(kernels::linear_recurrence(b.t, whole.t, b.t, 0), InvalidArgument);
}

TEST(Scan, NeutralElementsOfNarrowIntegersAreThoseOfTheirOwnType) {
  const auto first = [](ScanOp op, DType type) {
    Array in(type, {2}), out(type, {2});
    in.fill([](int64_t) { return 1; });
    kernels::scan(op, out.t, in.t, 0, {.exclusive = true});
    return out.get(0);
  };
  EXPECT_EQ(-128, first(ScanOp::cummax, i8));
  EXPECT_EQ(127, first(ScanOp::cummin, i8));
  EXPECT_EQ(0, first(ScanOp::cummax, u8));
  EXPECT_EQ(255, first(ScanOp::cummin, u8));
  EXPECT_EQ(INT32_MIN, first(ScanOp::cummax, i32));
  EXPECT_EQ(INT32_MAX, first(ScanOp::cummin, i32));
  EXPECT_EQ(0, first(ScanOp::cummax, bool_));
  EXPECT_EQ(1, first(ScanOp::cummin, bool_));
}

TEST(Scan, MayOverwriteItsInputAndTakesEdges) {
  Array in(f32, {100'000}), out(f32, {100'000});
  in.fill_random(2);
  kernels::scan(ScanOp::cumsum, out.t, in.t, 0);
  kernels::scan(ScanOp::cumsum, in.t, in.t, 0);
  EXPECT_TRUE(in.same_bits(out));
  Array empty(f32, {3, 0}), scalar(f32, {});
  kernels::scan(ScanOp::cumsum, empty.t, empty.t, 1);
  kernels::scan(ScanOp::cumsum, empty.t, empty.t, 0);
  scalar.set(0, 4);
  kernels::scan(ScanOp::cumsum, scalar.t, scalar.t, 0);
  EXPECT_EQ(4.0, scalar.get(0));
  const std::string message =
      test::error_of<InvalidArgument>([&] { kernels::scan(ScanOp::cumsum, out.t, scalar.t, 0); });
  EXPECT_TRUE(test::contains(message, "(100000,)")) << message;
  test::error_of<InvalidArgument>([&] { kernels::scan(ScanOp::cumsum, scalar.t, scalar.t, 1); });
}

TEST(Scan, ResultsDoNotDependOnTheNumberOfThreads) {
  for (const Shape& shape : {Shape{500'001}, Shape{400, 301}}) {
    Array in(f32, shape), one(f32, shape), two(f32, shape);
    in.fill_random(6);
    for (ScanOp op : kScans)
      for (int flags = 0; flags < 4; ++flags) {
        const kernels::ScanOptions options{(flags & 1) != 0, (flags & 2) != 0};
        test::with_threads(1, [&] { kernels::scan(op, one.t, in.t, 0, options); });
        test::with_threads(2, [&] { kernels::scan(op, two.t, in.t, 0, options); });
        EXPECT_TRUE(one.same_bits(two)) << kernels::to_string(op) << flags;
      }
  }
}

}  // namespace
}  // namespace mx
