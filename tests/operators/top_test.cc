// topk of few elements of long rows, compared with a stable sort, in every instruction set.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "operators/kernels/sort.h"
#include "tests/support/instruction_sets.h"
#include "tests/support/tensors.h"
#include "tests/support/thread_limit.h"

namespace mx {
namespace {

using test::Array;

bool comes_before(double a, double b, bool descending) {
  if (std::isnan(a) || std::isnan(b)) return !std::isnan(a) && std::isnan(b);
  return descending ? a > b : a < b;
}

/// Compares topk along the last axis of a matrix with a sort that keeps the order of equal elements.
void check(const Array& source, int64_t k, bool largest, const std::string& what) {
  const int64_t rows = source.t.shape[0], n = source.t.shape[1];
  const std::vector<double> x = source.values();
  Array values(source.t.dtype, {rows, k}), indices(i64, {rows, k}), alone(i32, {rows, k}, "transposed");
  kernels::topk(&values.t, &indices.t, source.t, 1, largest);
  kernels::topk(nullptr, &alone.t, source.t, 1, largest);
  for (int64_t row = 0; row < rows; ++row) {
    const double* const at = x.data() + row * n;
    std::vector<int64_t> order(static_cast<size_t>(n));
    std::iota(order.begin(), order.end(), int64_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return comes_before(at[a], at[b], largest); });
    for (int64_t i = 0; i < k; ++i) {
      const int64_t want = order[static_cast<size_t>(i)];
      ASSERT_EQ(want, indices.get(row * k + i)) << what << " row " << row << " place " << i;
      ASSERT_EQ(want, alone.get(row * k + i)) << what;
      const double value = values.get(row * k + i);
      ASSERT_EQ(std::isnan(at[want]), std::isnan(value)) << what;
      if (!std::isnan(value)) {
        ASSERT_EQ(at[want], value) << what;
        ASSERT_EQ(std::signbit(at[want]), std::signbit(value)) << what;
      }
    }
  }
}

/// Fills with one of several patterns: random, many ties, special numbers, each element better than those
/// before, each worse, all equal, all NaN with one number.
void fill(Array& source, int pattern, uint64_t seed) {
  std::mt19937_64 engine(seed);
  const int64_t n = source.t.shape[1];
  const DType type = source.t.dtype;
  const double inf = std::numeric_limits<double>::infinity();
  const double special[] = {std::nan(""), -0.0, 0.0, inf, -inf, -std::nan(""), 1, -1};
  const double lowest = type == u8 || type == bool_ ? 0 : -100;
  source.fill([&](int64_t i) -> double {
    const int64_t p = i % n;
    const double step = std::floor(static_cast<double>(p) * 200 / static_cast<double>(n));
    switch (pattern) {
      case 0:
        return lowest + static_cast<double>(engine() % 20000) / 100;
      case 1:
        return lowest + static_cast<double>(engine() % 4);
      case 2:
        return is_floating(type) ? special[engine() % 8] : static_cast<double>(engine() % 100);
      case 3:
        return lowest + step;
      case 4:
        return lowest + 200 - step;
      case 5:
        return 1;
      default:
        return !is_floating(type) || p == n / 2 ? 1 : std::nan("");
    }
  });
}

TEST(TopK, AgreesWithAStableSortInEveryInstructionSet) {
  test::with_every_instruction_set([](int64_t) {
    uint64_t seed = 0;
    for (const DType type : kAllDTypes) {
      for (const int64_t n : {9, 41, 160, 1027, 3000}) {
        for (int pattern = 0; pattern < 7; ++pattern) {
          const char* const layout = test::kLayouts[++seed % 4];
          Array source(type, {2, n}, layout);
          fill(source, pattern, seed);
          for (const int64_t k : {int64_t{1}, int64_t{2}, n / 10, n / 8, n / 4 - 1})
            if (k > 0)
              check(source, k, seed % 2 == 0,
                    std::string(to_string(type)) + ' ' + layout + ' ' + std::to_string(n) + " pattern " +
                        std::to_string(pattern) + " k " + std::to_string(k));
        }
      }
    }
  });
}

TEST(TopK, OfALongRowIsTheSameForEveryNumberOfThreads) {
  for (const DType type : {f32, f16, f64, i8})
    for (const int pattern : {0, 1, 3, 6})
      for (const int threads : {1, 4}) {
        Array source(type, {1, 200'003});
        fill(source, pattern, 5);
        test::with_threads(threads, [&] {
          check(source, 77, true, std::string(to_string(type)) + " pattern " + std::to_string(pattern));
          check(source, 5000, false, std::string(to_string(type)) + " pattern " + std::to_string(pattern));
        });
      }
}

}  // namespace
}  // namespace mx
