// Sorting, compared with std::stable_sort of each row.
#include "operators/kernels/sort.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "engine/base/error.h"
#include "tests/operators/layout.h"
#include "tests/support/errors.h"
#include "tests/support/thread_limit.h"

namespace mx {
namespace {

using namespace kernels;
using namespace testing;

using Values = std::vector<double>;

bool comes_before(double a, double b, bool descending) {
  if (std::isnan(a) || std::isnan(b)) return !std::isnan(a) && std::isnan(b);
  return descending ? a > b : a < b;
}

/// Returns the indices along the axis in sorted order, in the same shape.
Values argsort_oracle(const Values& values, const Shape& shape, int axis, bool descending) {
  Values result(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    Shape at = position(shape, i);
    if (at[axis] != 0) continue;
    std::vector<int64_t> order(static_cast<size_t>(shape[axis]));
    std::iota(order.begin(), order.end(), int64_t{0});
    const auto value = [&](int64_t k) {
      Shape there = at;
      there[axis] = k;
      return values[linear(shape, there)];
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return comes_before(value(a), value(b), descending); });
    for (size_t k = 0; k < order.size(); ++k) {
      at[axis] = static_cast<int64_t>(k);
      result[linear(shape, at)] = static_cast<double>(order[k]);
    }
  }
  return result;
}

void write_any(const Tensor& t, uint64_t seed) {
  write_random(t, t.dtype == u8 || t.dtype == bool_ ? 0 : -20, 20, seed);
  if (!is_floating(t.dtype)) return;
  Values values = read(t);
  const double special[] = {std::nan(""), -0.0, 0.0, std::numeric_limits<double>::infinity(),
                            -std::numeric_limits<double>::infinity()};
  for (size_t i = 0; i < values.size(); ++i)
    if ((i * 7 + seed) % 11 < 5) values[i] = special[(i + seed) % 5];
  write(t, values);
}

/// Expects bitwise equality, except for the kind of NaN.
void expect_same(const Values& expected, const Values& got) {
  ASSERT_EQ(expected.size(), got.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(expected[i])) {
      ASSERT_TRUE(std::isnan(got[i])) << i;
    } else {
      ASSERT_EQ(expected[i], got[i]) << i;
      ASSERT_EQ(std::signbit(expected[i]), std::signbit(got[i])) << i;
    }
  }
}

TEST(Sort, OrdersEveryTypeAlongEveryAxisInEveryLayout) {
  uint64_t seed = 0;
  for (DType dtype : kAllDTypes)
    for (Layout layout : kLayouts)
      for (bool descending : {false, true})
        for (int axis : {0, 1, 2}) {
          const Shape shape{5, 17, 4};
          const Owned source(dtype, shape, layout), target(dtype, shape, kTargets[++seed % 4]);
          const Owned index(seed % 2 ? i32 : i64, shape, kTargets[(seed + 1) % 4]);
          write_any(*source, seed);
          const Values values = read(*source), order = argsort_oracle(values, shape, axis, descending);
          argsort(*index, *source, axis - 3, descending);
          ASSERT_EQ(order, read(*index)) << dtype << axis;
          sort(*target, *source, axis, descending);
          Values expected;
          for (size_t i = 0; i < values.size(); ++i) {
            Shape at = position(shape, i);
            at[axis] = static_cast<int64_t>(order[i]);
            expected.push_back(values[linear(shape, at)]);
          }
          expect_same(expected, read(*target));
          for (int64_t k : {0, 1, 3, 4}) {
            Shape few = shape;
            few[axis] = k;
            const Owned top(dtype, few, kTargets[seed % 4]), where(i64, few);
            topk(&*top, &*where, *source, axis, descending);
            Values first, first_index;
            for (size_t i = 0; i < static_cast<size_t>(few.numel()); ++i) {
              const size_t from = linear(shape, position(few, i));
              first.push_back(expected[from]);
              first_index.push_back(order[from]);
            }
            expect_same(first, read(*top));
            ASSERT_EQ(first_index, read(*where)) << dtype << axis << k;
          }
        }
}

TEST(Sort, LongRowsAreMergedInTheOneRightOrder) {
  for (int64_t n : {16384, 16385, 32769, 100000, 131072}) {
    const Owned source(f32, {2, n}), target(f32, {2, n}), index(i64, {2, n});
    write_random(*source, -5000, 5000, static_cast<uint64_t>(n));
    const Values values = read(*source), order = argsort_oracle(values, {2, n}, 1, false);
    argsort(*index, *source, 1);
    ASSERT_EQ(order, read(*index)) << n;
    sort(*target, *source, 1);
    const Values sorted = read(*target);
    for (size_t i = 0; i < sorted.size(); ++i)
      ASSERT_EQ(values[i / static_cast<size_t>(n) * static_cast<size_t>(n) + static_cast<size_t>(order[i])],
                sorted[i]);
  }
}

// Long rows are sorted in pieces on several threads, with equal elements whose bits differ.
TEST(Sort, VeryLongRowsAreTheSameForEveryTypeAndNumberOfThreads) {
  for (const DType dtype : kAllDTypes) {
    const int64_t n = 300'001;
    const Owned source(dtype, {n}), target(dtype, {n}), index(i64, {n});
    write_any(*source, 3);
    for (const bool special : {false, true}) {
      if (!special) write_random(*source, dtype == bool_ ? 0 : 1, dtype == bool_ ? 2 : 120, 5);
      for (const bool descending : {false, true}) {
        Values sorted[2], order[2];
        for (const int threads : {1, 4})
          test::with_threads(threads, [&] {
            sort(*target, *source, 0, descending);
            sorted[threads / 4] = read(*target);
            argsort(*index, *source, 0, descending);
            order[threads / 4] = read(*index);
          });
        const Values values = read(*source), expected = argsort_oracle(values, {n}, 0, descending);
        ASSERT_EQ(expected, order[0]) << dtype << descending;
        ASSERT_EQ(expected, order[1]) << dtype << descending;
        Values chosen;
        for (const double i : expected) chosen.push_back(values[static_cast<size_t>(i)]);
        expect_same(chosen, sorted[0]);
        expect_same(chosen, sorted[1]);
      }
      if (!is_floating(dtype)) break;
    }
  }
}

TEST(Sort, InPlaceGivesTheSame) {
  for (Layout layout : kTargets)
    for (int axis : {0, 1}) {
      const Owned t(f64, {300, 40}, layout), other(f64, {300, 40});
      write_random(*t, -1000, 1000, 3);
      sort(*other, *t, axis, true);
      sort(*t, *t, axis, true);
      EXPECT_EQ(read(*other), read(*t));
    }
}

TEST(Sort, TellsLargeIntegersApart) {
  const Owned t(i64, {4}), index(i32, {4});
  write(*t, std::vector<int64_t>{INT64_MAX, INT64_MAX - 1, INT64_MIN, INT64_MIN + 1});
  argsort(*index, *t, 0);
  EXPECT_EQ((Values{2, 3, 1, 0}), read(*index));
  argsort(*index, *t, 0, true);
  EXPECT_EQ((Values{0, 1, 3, 2}), read(*index));
}

TEST(Sort, OfNothingIsNothing) {
  const Owned none(f32, {0}), rows(f32, {0, 3}), empty(f32, {3, 0}), index(i64, {3, 0}), one(f32, {1}),
      out(f32, {1});
  sort(*none, *none, 0);
  sort(*rows, *rows, 1);
  argsort(*index, *empty, 1);
  write(*one, Values{4});
  sort(*out, *one, 0);
  EXPECT_EQ(Values{4}, read(*out));
  EXPECT_EQ(0, Unique(*none).count());
}

TEST(Unique, FindsWhatAMapFinds) {
  uint64_t seed = 100;
  for (DType dtype : kAllDTypes)
    for (Layout layout : kLayouts)
      for (const Shape& shape : {Shape{7, 9}, Shape{90, 400}, Shape{}}) {
        const Owned source(dtype, shape, layout);
        write_any(*source, ++seed);
        const Values values = read(*source);
        struct Seen {
          double value, first, count;
        };
        const auto before = [](double a, double b) { return comes_before(a, b, false); };
        std::map<double, Seen, decltype(before)> seen(before);
        for (size_t i = 0; i < values.size(); ++i)
          ++seen.try_emplace(values[i], Seen{values[i], static_cast<double>(i), 0}).first->second.count;
        Values expected, first, counts, inverse;
        for (const auto& [value, s] : seen) {
          expected.push_back(s.value);
          first.push_back(s.first);
          counts.push_back(s.count);
        }
        for (double value : values)
          inverse.push_back(static_cast<double>(std::distance(seen.begin(), seen.find(value))));
        const Unique unique(*source);
        const int64_t n = unique.count();
        ASSERT_EQ(static_cast<int64_t>(seen.size()), n) << dtype;
        const Owned v(dtype, {n}), f(i64, {n}), c(i32, {n}), which(i64, shape, kTargets[seed % 4]);
        unique.values(*v);
        unique.first(*f);
        unique.counts(*c);
        unique.inverse(*which);
        expect_same(expected, read(*v));
        ASSERT_EQ(first, read(*f));
        ASSERT_EQ(counts, read(*c));
        ASSERT_EQ(inverse, read(*which));
      }
}

TEST(Unique, OfManyBeginsWhereTheSortedOrderDoes) {
  const int64_t n = 200'003;
  for (const DType dtype : {f32, f64, i8}) {
    const Owned source(dtype, {n});
    write_any(*source, 9);
    const Values values = read(*source), order = argsort_oracle(values, {n}, 0, false);
    Values starts, counts;
    for (size_t i = 0; i < order.size(); ++i) {
      const auto value = [&](size_t at) { return values[static_cast<size_t>(order[at])]; };
      if (i == 0 || comes_before(value(i - 1), value(i), false)) {
        starts.push_back(order[i]);
        counts.push_back(0);
      }
      ++counts.back();
    }
    const Unique unique(*source);
    ASSERT_EQ(static_cast<int64_t>(starts.size()), unique.count()) << dtype;
    const Owned first(i64, {unique.count()}), count(i32, {unique.count()});
    unique.first(*first);
    unique.counts(*count);
    EXPECT_EQ(starts, read(*first)) << dtype;
    EXPECT_EQ(counts, read(*count)) << dtype;
  }
}

TEST(SearchSorted, FindsWhatACountFinds) {
  uint64_t seed = 200;
  for (DType dtype : kAllDTypes)
    for (Layout layout : kTargets)
      for (bool behind : {false, true})
        for (int64_t n : {0, 1, 50}) {
          const Owned given(dtype, {n}), sorted(dtype, {n}, layout),
              values(dtype, {6, 11}, kLayouts[++seed % 5]);
          const Owned target(seed % 2 ? i32 : i64, {6, 11}, kTargets[seed % 4]);
          write_any(*given, seed);
          write_any(*values, seed + 1);
          sort(*sorted, *given, 0);
          searchsorted(*target, *sorted, *values, behind);
          const Values s = read(*sorted), v = read(*values), got = read(*target);
          for (size_t i = 0; i < v.size(); ++i) {
            double count = 0;
            for (double x : s) count += behind ? !comes_before(v[i], x, false) : comes_before(x, v[i], false);
            ASSERT_EQ(count, got[i]) << dtype << v[i];
          }
        }
}

TEST(Sort, RefusesWhatDoesNotFit) {
  const Owned a(f32, {2, 3}), b(f32, {3, 2}), d(f64, {2, 3}), index(f32, {2, 3}), big(f32, {2, 4}),
      flat(f32, {6});
  const Owned where(i64, {2, 3}), other(i64, {2, 2});
  write(*a, Values{1, 2, 3, 4, 5, 6});
  const auto text = [](auto call) { return test::error_of<InvalidArgument>(call); };
  EXPECT_EQ("[sort] expected values of shape (2, 3), got (3, 2)", text([&] { sort(*b, *a, 1); }));
  EXPECT_EQ("[sort] expected arrays of the same type, got f64 and f32", text([&] { sort(*d, *a, 1); }));
  EXPECT_NE("", text([&] { sort(*a, *a, 2); }));
  EXPECT_EQ("[argsort] expected indices of type i32 or i64, got f32", text([&] { argsort(*index, *a, 1); }));
  EXPECT_EQ("[argsort] expected indices of shape (2, 3), got (2, 2)", text([&] { argsort(*other, *a, 1); }));
  EXPECT_EQ("[topk] expected targets of shape (2, 3), with at most 3 elements along axis 1, got (2, 4)",
            text([&] { topk(&*big, nullptr, *a, 1); }));
  EXPECT_EQ("[topk] expected indices of shape (2, 3), got (2, 2)", text([&] { topk(&*a, &*other, *a, 1); }));
  EXPECT_EQ("[searchsorted] expected a sorted array of rank 1, got shape (2, 3)",
            text([&] { searchsorted(*where, *a, *a); }));
  EXPECT_EQ("[searchsorted] expected a target of shape (2, 3), got (2, 2)",
            text([&] { searchsorted(*other, *flat, *a); }));
  EXPECT_EQ("[searchsorted] expected arrays of the same type, got f32 and f64",
            text([&] { searchsorted(*where, *flat, *d); }));
  const Unique unique(*a);
  EXPECT_EQ("[unique] expected a target of shape (6,), got (2, 3)", text([&] { unique.values(*a); }));
  EXPECT_EQ("[unique] expected indices of type i32 or i64, got f32", text([&] { unique.counts(*flat); }));
  EXPECT_EQ("[unique] expected a target of shape (2, 3), got (2, 2)", text([&] { unique.inverse(*other); }));
}

}  // namespace
}  // namespace mx
