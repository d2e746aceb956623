#include "operators/kernels/gemm.h"

#include <gtest/gtest.h>
#include <tbb/global_control.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "ndarray/kernels/convert.h"
#include "tests/support/instruction_sets.h"

namespace mx {
namespace {

using kernels::BatchDim;
using kernels::gemm;
using kernels::gemm_batched;
using kernels::GemmOptions;
using kernels::Matrix;

/// A matrix inside a larger buffer, so that strides of all kinds stay within the buffer.
template <class T>
struct Operand {
  std::vector<T> data;
  int64_t origin = 0, rs = 0, cs = 0;

  T& at(int64_t i, int64_t j) { return data[static_cast<size_t>(origin + i * rs + j * cs)]; }
  T at(int64_t i, int64_t j) const { return data[static_cast<size_t>(origin + i * rs + j * cs)]; }
  Matrix matrix() const { return {data.data() + origin, rs, cs}; }
};

enum Order {
  kRows,
  kPaddedRows,
  kColumns,
  kPaddedColumns,
  kStrided,
  kBackwards,
  kBroadcastRow,
  kBroadcastAll
};
constexpr Order kForReading[] = {kRows,    kPaddedRows, kColumns,      kPaddedColumns,
                                 kStrided, kBackwards,  kBroadcastRow, kBroadcastAll};
constexpr Order kForWriting[] = {kRows, kPaddedRows, kColumns, kPaddedColumns, kStrided, kBackwards};

std::minstd_rand& generator() {
  static std::minstd_rand g(7);
  return g;
}
int64_t random_int(int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(generator());
}

template <class T>
T random_element() {
  if constexpr (std::is_same_v<T, bool>) return random_int(0, 7) == 0;
  if constexpr (std::is_same_v<T, int64_t>) return random_int(-(int64_t{1} << 40), int64_t{1} << 40);
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(random_int(std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
  return static_cast<T>(std::uniform_real_distribution<float>(-1, 1)(generator()));
}

template <class T>
struct Storage {
  using type = T;
};
// A replacement for bool in vectors: std::vector<bool> has no addressable elements.
struct Bool {
  bool value;
  Bool() = default;
  Bool(bool v) : value(v) {}
  operator bool() const { return value; }
};
static_assert(sizeof(Bool) == 1);
template <>
struct Storage<bool> {
  using type = Bool;
};

template <class T>
Operand<typename Storage<T>::type> operand(int64_t rows, int64_t cols, Order layout) {
  Operand<typename Storage<T>::type> m;
  switch (layout) {
    case kRows:
      m.rs = cols, m.cs = 1;
      break;
    case kPaddedRows:
      m.rs = cols + 5, m.cs = 1, m.origin = 3;
      break;
    case kColumns:
      m.rs = 1, m.cs = rows;
      break;
    case kPaddedColumns:
      m.rs = 1, m.cs = rows + 3, m.origin = 1;
      break;
    case kStrided:
      m.cs = 3, m.rs = 3 * cols + 2;
      break;
    case kBackwards:
      m.cs = -1, m.rs = -cols, m.origin = std::max<int64_t>(0, rows * cols - 1);
      break;
    case kBroadcastRow:
      m.rs = 0, m.cs = 1;
      break;
    case kBroadcastAll:
      break;
  }
  // The buffer ends at the last element, so that AddressSanitizer detects reads past it.
  const int64_t last = m.origin + std::max<int64_t>(0, m.rs) * std::max<int64_t>(0, rows - 1) +
                       std::max<int64_t>(0, m.cs) * std::max<int64_t>(0, cols - 1);
  m.data.resize(rows > 0 && cols > 0 ? static_cast<size_t>(last + 1) : 0);
  for (auto& x : m.data) x = random_element<T>();
  if (m.data.empty()) m.origin = 0;
  return m;
}

/// The exact product of elements of T, and the tolerance of a result.
template <class T, class S>
void expect_product(int64_t m, int64_t n, int64_t k, const Operand<S>& a, const Operand<S>& b,
                    const Operand<S>& before, const Operand<S>& after, const GemmOptions& options,
                    const std::string& what) {
  const S* const bias = static_cast<const S*>(options.bias);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      const S* const add = bias == nullptr ? nullptr : bias + j * options.bias_stride;
      if constexpr (std::is_same_v<T, bool>) {
        bool sum = false;
        for (int64_t q = 0; q < k; ++q) sum = sum || (a.at(i, q) && b.at(q, j));
        bool want = (options.alpha != 0 && sum) || (options.beta != 0 && before.at(i, j));
        want = want || (add != nullptr && *add);
        ASSERT_EQ(want, static_cast<bool>(after.at(i, j))) << what << " at " << i << ", " << j;
      } else if constexpr (std::is_integral_v<T>) {
        uint64_t sum = 0;
        for (int64_t q = 0; q < k; ++q)
          sum += static_cast<uint64_t>(int64_t{a.at(i, q)}) * static_cast<uint64_t>(int64_t{b.at(q, j)});
        sum *= static_cast<uint64_t>(static_cast<int64_t>(options.alpha));
        if (options.beta != 0)
          sum += static_cast<uint64_t>(static_cast<int64_t>(options.beta)) *
                 static_cast<uint64_t>(int64_t{before.at(i, j)});
        if (add != nullptr) sum += static_cast<uint64_t>(int64_t{*add});
        ASSERT_EQ(static_cast<T>(sum), after.at(i, j)) << what << " at " << i << ", " << j;
      } else {
        double sum = 0, size = 0;
        for (int64_t q = 0; q < k; ++q) {
          const double term = static_cast<double>(a.at(i, q)) * static_cast<double>(b.at(q, j));
          sum += term;
          size += std::abs(term);
        }
        sum *= options.alpha;
        size *= std::abs(options.alpha);
        if (options.beta != 0) {
          const double term = options.beta * static_cast<double>(before.at(i, j));
          sum += term;
          size += std::abs(term);
        }
        if (add != nullptr) {
          sum += static_cast<double>(*add);
          size += std::abs(static_cast<double>(*add));
        }
        // k + 3 roundings in the type of the sums (Higham, "Accuracy and Stability", 3.1), and one in T.
        const double eps_sum = std::is_same_v<T, double> ? 0x1p-53 : 0x1p-24;
        const double eps = std::is_same_v<T, float16> ? 0x1p-11 : std::is_same_v<T, bfloat16> ? 0x1p-8 : 0;
        const double bound =
            1.1 * static_cast<double>(k + 3) * eps_sum * size + eps * std::abs(sum) + 1e-7 * eps;
        ASSERT_NEAR(sum, static_cast<double>(after.at(i, j)), bound) << what << " at " << i << ", " << j;
      }
    }
  }
}

template <class T>
void check(int64_t m, int64_t n, int64_t k, Order la, Order lb, Order lc, GemmOptions options,
           bool with_bias) {
  const auto a = operand<T>(m, k, la), b = operand<T>(k, n, lb);
  const auto before = operand<T>(m, n, lc);
  auto after = before;
  const auto bias = operand<T>(1, n, random_int(0, 1) == 0 ? kRows : kStrided);
  if (with_bias && n > 0) {
    options.bias = bias.data.data();
    options.bias_stride = bias.cs;
  }
  gemm(dtype_of<T>, m, n, k, a.matrix(), b.matrix(), after.data.data() + after.origin, after.rs, after.cs,
       options);
  const std::string what = std::string(to_string(dtype_of<T>)) + " " + std::to_string(m) + "x" +
                           std::to_string(n) + "x" + std::to_string(k) + " layouts " + std::to_string(la) +
                           std::to_string(lb) + std::to_string(lc) + " alpha " +
                           std::to_string(options.alpha) + " beta " + std::to_string(options.beta);
  expect_product<T>(m, n, k, a, b, before, after, options, what);
  // The memory between the elements of C must not change.
  auto expected = before;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) expected.at(i, j) = after.at(i, j);
  if (!expected.data.empty()) {
    EXPECT_EQ(0,
              std::memcmp(expected.data.data(), after.data.data(), after.data.size() * sizeof(after.data[0])))
        << what;
  }
}

template <class T>
void check_random(int times) {
  constexpr int64_t kSizes[] = {0,  1,  2,  3,  5,  7,  8,  13, 14, 15, 16, 17, 23, 27, 28,
                                29, 31, 32, 33, 37, 41, 47, 48, 49, 63, 64, 65, 67, 97, 130};
  const auto size = [&] { return kSizes[random_int(0, std::size(kSizes) - 1)]; };
  const double factors[] = {0, 1, -1, 2, 3};
  for (int t = 0; t < times; ++t) {
    const GemmOptions options{factors[random_int(0, 4)], factors[random_int(0, 4)], nullptr, 1};
    check<T>(size(), size(), size(), kForReading[random_int(0, 7)], kForReading[random_int(0, 7)],
             kForWriting[random_int(0, 5)], random_int(0, 1) == 0 ? GemmOptions{} : options,
             random_int(0, 2) == 0);
  }
}

template <class T>
class GemmTyped : public ::testing::Test {};
using Types = ::testing::Types<float, double, float16, bfloat16, int8_t, uint8_t, int32_t, int64_t, bool>;
TYPED_TEST_SUITE(GemmTyped, Types);

TYPED_TEST(GemmTyped, AgreesWithAPlainLoopOnAnyShapeAndStrides) { check_random<TypeParam>(300); }

TYPED_TEST(GemmTyped, AgreesWithAPlainLoopWhenBlocksAreCut) {
  // Larger than the depth of a block (512 for f32, 256 for f64), and enough work for several threads.
  check<TypeParam>(61, 130, 1031, kRows, kRows, kRows, {}, false);
  check<TypeParam>(61, 130, 513, kRows, kColumns, kPaddedRows, {2, 3, nullptr, 1}, true);
  check<TypeParam>(45, 70, 1030, kColumns, kRows, kColumns, {-1, 1, nullptr, 1}, true);
  check<TypeParam>(257, 131, 257, kStrided, kBackwards, kStrided, {1, 1, nullptr, 1}, true);
  check<TypeParam>(3, 1100, 257, kRows, kPaddedRows, kRows, {}, true);
  check<TypeParam>(601, 67, 130, kPaddedColumns, kPaddedColumns, kRows, {}, false);
}

// The transpose of A is read in place, and C is transposed at the end.
template <class T>
void check_narrow_products() {
  for (const int64_t n : {15, 16, 17, 31, 32, 50})
    for (const Order la : {kColumns, kPaddedColumns})
      for (const Order lb : {kRows, kPaddedRows})
        for (const Order lc : {kRows, kPaddedRows}) {
          check<T>(263, n, 270, la, lb, lc, {}, false);
          check<T>(64 * (n % 3 + 3), n, 261, la, lb, lc, {-2, 0, nullptr, 1}, false);
        }
}

TYPED_TEST(GemmTyped, NarrowProductsOfATransposedMatrixAgreeWithAPlainLoop) {
  check_narrow_products<TypeParam>();
}

TYPED_TEST(GemmTyped, VectorsTimesMatricesAgreeWithAPlainLoop) {
  for (const int64_t size : {1, 2, 5, 31, 64, 200, 1033}) {
    for (const int64_t k : {1, 3, 64, 517}) {
      for (const Order l : {kRows, kColumns, kStrided, kPaddedRows, kBackwards}) {
        check<TypeParam>(1, size, k, kRows, l, kRows, {}, true);
        check<TypeParam>(size, 1, k, l, kStrided, kRows, {2, 1, nullptr, 1}, false);
        check<TypeParam>(size, 1, k, l, kRows, kStrided, {}, true);
        check<TypeParam>(1, size, k, kStrided, l, kStrided, {1, 2, nullptr, 1}, false);
      }
    }
  }
}

TEST(Gemm, EveryInstructionSetGivesTheProduct) {
  test::with_every_instruction_set([](int64_t) {
    check_random<float>(60);
    check_random<double>(60);
    check_random<float16>(60);
    check_random<bfloat16>(60);
    check_random<uint8_t>(30);
    check_random<int64_t>(30);
    check_random<bool>(30);
    check<float>(61, 130, 1031, kRows, kColumns, kRows, {}, false);
    check<double>(61, 70, 531, kColumns, kRows, kRows, {}, false);
    check_narrow_products<float>();
    check_narrow_products<double>();
  });
}

template <class T>
std::vector<T> product_bits(size_t threads, int64_t m, int64_t n, int64_t k, Order la, Order lb) {
  generator().seed(3);
  const auto a = operand<T>(m, k, la), b = operand<T>(k, n, lb);
  std::vector<T> c(static_cast<size_t>(m * n));
  const tbb::global_control limit(tbb::global_control::max_allowed_parallelism, threads);
  gemm(dtype_of<T>, m, n, k, a.matrix(), b.matrix(), c.data(), n, 1, {});
  return c;
}

template <class T>
void expect_same_bits_on_any_threads(int64_t m, int64_t n, int64_t k, Order la, Order lb) {
  const auto one = product_bits<T>(1, m, n, k, la, lb);
  for (const size_t threads : {2, 3, 8})
    ASSERT_EQ(
        0, std::memcmp(one.data(), product_bits<T>(threads, m, n, k, la, lb).data(), one.size() * sizeof(T)))
        << m << "x" << n << "x" << k << " on " << threads << " threads";
}

TEST(Gemm, ResultsDoNotDependOnTheNumberOfThreads) {
  for (const Order la : {kRows, kColumns}) {
    for (const Order lb : {kRows, kColumns}) {
      expect_same_bits_on_any_threads<float>(300, 301, 302, la, lb);
      expect_same_bits_on_any_threads<float>(65, 1200, 701, la, lb);
      expect_same_bits_on_any_threads<double>(1201, 63, 300, la, lb);
      expect_same_bits_on_any_threads<float>(1000, 32, 301, la, lb);
      expect_same_bits_on_any_threads<bfloat16>(300, 301, 302, la, lb);
      expect_same_bits_on_any_threads<float>(1, 2100, 1100, la, lb);
      expect_same_bits_on_any_threads<float>(2100, 1, 1100, la, lb);
    }
  }
}

template <class T>
void check_batch(int64_t m, int64_t n, int64_t k, Order la, Order lb, std::vector<BatchDim> dims) {
  int64_t reach_a = 0, reach_b = 0, reach_c = 0;
  for (const BatchDim& d : dims) {
    reach_a += (d.size - 1) * d.a_stride;
    reach_b += (d.size - 1) * d.b_stride;
    reach_c += (d.size - 1) * d.c_stride;
  }
  auto a = operand<T>(m, k, la), b = operand<T>(k, n, lb), c = operand<T>(m, n, kRows);
  const auto grow = [](Operand<T>& o, int64_t by) {
    const size_t old = o.data.size();
    o.data.resize(old + static_cast<size_t>(by));
    for (size_t i = old; i < o.data.size(); ++i) o.data[i] = random_element<T>();
  };
  grow(a, reach_a), grow(b, reach_b), grow(c, reach_c);
  auto single = c;
  const GemmOptions options{2, 1, nullptr, 1};
  gemm_batched(dtype_of<T>, dims, m, n, k, a.matrix(), b.matrix(), c.data.data(), c.rs, c.cs, options);

  std::vector<int64_t> index(dims.size());
  for (bool more = true; more;) {
    int64_t oa = a.origin, ob = b.origin, oc = 0;
    for (size_t d = 0; d < dims.size(); ++d) {
      oa += index[d] * dims[d].a_stride;
      ob += index[d] * dims[d].b_stride;
      oc += index[d] * dims[d].c_stride;
    }
    gemm(dtype_of<T>, m, n, k, {a.data.data() + oa, a.rs, a.cs}, {b.data.data() + ob, b.rs, b.cs},
         single.data.data() + oc, c.rs, c.cs, options);
    more = false;
    for (size_t d = 0; d < dims.size() && !more; ++d) {
      more = ++index[d] < dims[d].size;
      if (!more) index[d] = 0;
    }
  }
  EXPECT_EQ(0, std::memcmp(single.data.data(), c.data.data(), c.data.size() * sizeof(T)))
      << m << "x" << n << "x" << k;
}

TEST(Gemm, ABatchGivesTheBitsOfItsProducts) {
  check_batch<float>(5, 7, 9, kRows, kRows, {});
  check_batch<float>(5, 7, 9, kRows, kRows, {{3, 45, 63, 35}});
  check_batch<float>(16, 16, 16, kRows, kColumns, {{100, 256, 0, 1024}, {4, 0, 256, 256}});
  check_batch<double>(7, 1, 33, kRows, kColumns, {{2, 0, 33, 84}, {3, 231, 0, 28}, {4, 231, 33, 7}});
  check_batch<float>(1, 40, 33, kColumns, kColumns, {{2, 33, 0, 40}, {1, 9, 9, 9}});
  check_batch<float>(200, 210, 150, kColumns, kRows, {{3, 30000, 0, 42000}});
  check_batch<int8_t>(9, 8, 7, kRows, kRows, {{60, 63, 56, 72}});
}

TEST(Gemm, ABatchOfNothingWritesNothing) {
  const float a[] = {1, 2}, b[] = {3, 4};
  float c[] = {5};
  const BatchDim none[] = {{3, 1, 1, 1}, {0, 1, 1, 1}};
  gemm_batched(f32, none, 1, 1, 2, {a, 2, 1}, {b, 1, 1}, c, 1, 1);
  EXPECT_EQ(5, c[0]);
}

TEST(Gemm, WithoutBetaNothingOfCIsRead) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const int64_t n : {1, 5, 16, 40}) {
    std::vector<float> a(static_cast<size_t>(n * n), 1), b(static_cast<size_t>(n * n), 2);
    std::vector<float> c(static_cast<size_t>(2 * n * n), nan);
    for (const int64_t cs : {1, 2}) {
      std::fill(c.begin(), c.end(), nan);
      gemm(f32, n, n, n, {a.data(), n, 1}, {b.data(), n, 1}, c.data(), n * cs, cs);
      for (int64_t i = 0; i < n * n; ++i)
        ASSERT_EQ(static_cast<float>(2 * n), c[static_cast<size_t>(i * cs)]);
    }
  }
}

TEST(Gemm, WithoutAlphaOrDepthNothingOfAAndBIsRead) {
  for (const double alpha : {0.0, 1.0, std::numeric_limits<double>::infinity()}) {
    float c[] = {1, 2, 3, 4, 5, 6};
    const float bias[] = {10, 20, 30};
    gemm(f32, 2, 3, alpha == 0 ? 5 : 0, {nullptr, 5, 1}, {nullptr, 3, 1}, c, 3, 1, {alpha, 2, bias, 1});
    const float want[] = {12, 24, 36, 18, 30, 42};
    EXPECT_EQ(0, std::memcmp(want, c, sizeof(c))) << alpha;
    gemm(f32, 2, 3, alpha == 0 ? 5 : 0, {nullptr, 5, 1}, {nullptr, 3, 1}, c, 3, 1, {alpha, 0, nullptr, 1});
    for (const float x : c) EXPECT_EQ(0, x) << alpha;
  }
}

TEST(Gemm, NanAndInfinityReachTheirRowsAndColumnsOnly) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const int64_t n : {3, 17, 50}) {
    for (const bool transposed : {false, true}) {
      std::vector<double> a(static_cast<size_t>(n * n), 1), b = a, c = a;
      a[static_cast<size_t>(1 * n + 2)] = std::nan("");  // element (1, 2), or (2, 1) transposed
      b[static_cast<size_t>(0 * n + 1)] = inf;
      const int64_t rs = transposed ? 1 : n, cs = transposed ? n : 1;
      gemm(f64, n, n, n, {a.data(), rs, cs}, {b.data(), rs, cs}, c.data(), n, 1);
      const int64_t row = transposed ? 2 : 1, column = transposed ? 0 : 1;
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          const double x = c[static_cast<size_t>(i * n + j)];
          if (i == row) {
            ASSERT_TRUE(std::isnan(x)) << i << ", " << j;
          } else {
            ASSERT_EQ(j == column ? inf : static_cast<double>(n), x) << i << ", " << j;
          }
        }
      }
    }
  }
}

TEST(Gemm, ZeroTimesInfinityIsNotSkipped) {
  const float a[] = {0, 1}, b[] = {std::numeric_limits<float>::infinity(), 1};
  float c[1];
  gemm(f32, 1, 1, 2, {a, 2, 1}, {b, 1, 1}, c, 1, 1);
  EXPECT_TRUE(std::isnan(c[0]));
}

TEST(Gemm, HalvesAreRoundedOnceAtTheEnd) {
  // 2048 + 1 + 1 would stay 2048 in f16 if each step were rounded, and 256 + 1 + 1 would stay 256 in bf16.
  const float16 a[] = {2048.F, 1.F, 1.F}, ones[] = {1.F, 1.F, 1.F};
  float16 c[1];
  gemm(f16, 1, 1, 3, {a, 3, 1}, {ones, 1, 1}, c, 1, 1);
  EXPECT_EQ(2050.F, static_cast<float>(c[0]));
  const bfloat16 d[] = {256.F, 1.F, 1.F}, more[] = {1.F, 1.F, 1.F};
  bfloat16 e[1];
  gemm(bf16, 1, 1, 3, {d, 3, 1}, {more, 1, 1}, e, 1, 1);
  EXPECT_EQ(258.F, static_cast<float>(e[0]));
}

TEST(Gemm, RefusesWhatHasNoMeaning) {
  const float x[] = {1, 1, 1, 1};
  float c[4];
  EXPECT_THROW(gemm(f32, -1, 1, 1, {x, 1, 1}, {x, 1, 1}, c, 1, 1), InvalidArgument);
  EXPECT_THROW(gemm(f32, 2, 2, 2, {x, 2, 1}, {x, 2, 1}, c, 0, 1), InvalidArgument);
  const BatchDim overlapping[] = {{2, 0, 0, 0}}, negative[] = {{-1, 1, 1, 1}};
  EXPECT_THROW(gemm_batched(f32, overlapping, 1, 1, 1, {x, 1, 1}, {x, 1, 1}, c, 1, 1), InvalidArgument);
  EXPECT_THROW(gemm_batched(f32, negative, 1, 1, 1, {x, 1, 1}, {x, 1, 1}, c, 1, 1), InvalidArgument);
}

}  // namespace
}  // namespace mx
