// Writing at indices, compared with loops that apply one update after another.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/base/error.h"
#include "operators/kernels/index.h"
#include "tests/operators/layout.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using namespace kernels;
using namespace testing;

using Values = std::vector<double>;
constexpr Scatter kHow[] = {Scatter::set, Scatter::add, Scatter::mul, Scatter::max, Scatter::min};

double meet(double a, double b, Scatter how, DType dtype) {
  if (dtype == bool_) {
    if (how == Scatter::add) how = Scatter::max;
    if (how == Scatter::mul) how = Scatter::min;
  }
  switch (how) {
    case Scatter::set:
      return b;
    case Scatter::add:
      return a + b;
    case Scatter::mul:
      return a * b;
    case Scatter::max:
      return std::max(a, b);
    case Scatter::min:
      return std::min(a, b);
  }
  return 0;
}

int64_t from_front(double index, int64_t size) {
  return static_cast<int64_t>(index) + (index < 0 ? size : 0);
}

// Writes small numbers: no product or sum of them rounds or overflows in any type.
void write_small(const Tensor& t, uint64_t seed) { write_random(t, 0, 2, seed); }

TEST(Scatter, UpdatesInTheOrderOfTheIndices) {
  uint64_t seed = 1;
  for (DType dtype : kAllDTypes)
    for (Scatter how : kHow)
      for (Layout layout : kTargets)
        for (int axis : {0, 1, 2}) {
          Shape shape{2, 3, 2};
          shape[axis] = 4;
          const Owned target(dtype, {3, 3, 3}, layout), updates(dtype, shape, kLayouts[seed % 5]);
          const Owned index(seed % 2 ? i32 : i64, shape, kLayouts[(seed + axis) % 5]);
          write_small(*target, ++seed);
          write_small(*updates, seed + 1000);
          write_random(*index, -3, 2, seed);
          Values expected = read(*target);
          const Values u = read(*updates), j = read(*index);
          for (size_t i = 0; i < u.size(); ++i) {
            Shape at = position(shape, i);
            at[axis] = from_front(j[i], 3);
            double& value = expected[linear(target->shape, at)];
            value = meet(value, u[i], how, dtype);
          }
          scatter(*target, *index, *updates, axis, how);
          ASSERT_EQ(expected, read(*target)) << dtype << axis << static_cast<int>(how);
        }
}

TEST(IndexUpdate, UpdatesInTheOrderOfTheIndices) {
  uint64_t seed = 1;
  for (DType dtype : kAllDTypes)
    for (Scatter how : kHow)
      for (Layout layout : kTargets)
        for (int axis : {0, 1, 2}) {
          Shape shape{3, 4, 5};
          shape[axis] = 6;
          const Owned target(dtype, {3, 4, 5}, layout), updates(dtype, shape, kLayouts[seed % 5]);
          const Owned index(seed % 2 ? i32 : i64, {6}, kTargets[seed % 4]);
          const int64_t size = target->shape[axis];
          write_small(*target, ++seed);
          write_small(*updates, seed + 1000);
          write_random(*index, -size, size - 1, seed);
          Values expected = read(*target);
          const Values u = read(*updates), j = read(*index);
          for (size_t i = 0; i < u.size(); ++i) {
            Shape at = position(shape, i);
            at[axis] = from_front(j[static_cast<size_t>(at[axis])], size);
            double& value = expected[linear(target->shape, at)];
            value = meet(value, u[i], how, dtype);
          }
          index_update(*target, *index, *updates, axis, how);
          ASSERT_EQ(expected, read(*target)) << dtype << axis << static_cast<int>(how);
        }
}

TEST(PutNd, UpdatesInTheOrderOfTheIndices) {
  uint64_t seed = 1;
  for (DType dtype : kAllDTypes)
    for (Scatter how : kHow)
      for (Layout layout : kTargets)
        for (int second : {1, 2}) {
          const Owned target(dtype, {3, 4, 5}, layout), a(i64, {3, 1}), b(i32, {4}, kTargets[seed % 4]);
          write_small(*target, ++seed);
          write_random(*a, -3, 2, seed);
          write_random(*b, -4, 3, seed);
          const Tensor both[2] = {*a, *b};
          const Shape shape = gather_nd_shape(target->shape, both, {0, second});
          // Broadcast along the first dimension of the indices.
          const Owned updates(dtype, {4, shape[2]}, kLayouts[seed % 5]);
          write_small(*updates, seed + 1000);
          Values expected = read(*target);
          const Values u = read(*updates), ia = read(*a), ib = read(*b);
          for (size_t i = 0; i < static_cast<size_t>(shape.numel()); ++i) {
            const Shape at = position(shape, i);
            const int64_t x = from_front(ia[static_cast<size_t>(at[0])], 3);
            const int64_t y = from_front(ib[static_cast<size_t>(at[1])], target->shape[second]);
            const Shape to = second == 1 ? Shape{x, y, at[2]} : Shape{x, at[2], y};
            double& value = expected[linear(target->shape, to)];
            value = meet(value, u[linear(updates->shape, {at[1], at[2]})], how, dtype);
          }
          put_nd(*target, both, {0, second}, *updates, how);
          ASSERT_EQ(expected, read(*target)) << dtype << second << static_cast<int>(how);
        }
}

// Sums of floats of very different magnitudes: another order of additions gives other bits.
TEST(IndexUpdate, LargeSumsHaveTheBitsOfTheSerialOrder) {
  for (int64_t columns : {1, 3, 16, 17, 64, 5000})
    for (DType type : {i32, i64}) {
      const int64_t rows = 50, count = columns == 5000 ? 200 : 20000;
      const Owned target(f32, {rows, columns}), updates(f32, {count, columns}), index(type, {count});
      std::mt19937_64 random(7);
      Values u(static_cast<size_t>(count * columns));
      for (double& value : u)
        value = std::ldexp(static_cast<double>(random() % 2000) - 1000, static_cast<int>(random() % 30) - 15);
      write(*updates, u);
      write_random(*index, 0, rows - 1, 8);
      write_random(*target, -5, 5, 9);
      std::vector<float> expected = read<float>(*target);
      const std::vector<float> from = read<float>(*updates);
      const Values j = read(*index);
      for (int64_t i = 0; i < count; ++i)
        for (int64_t c = 0; c < columns; ++c)
          expected[static_cast<size_t>(static_cast<int64_t>(j[static_cast<size_t>(i)]) * columns + c)] +=
              from[static_cast<size_t>(i * columns + c)];
      index_update(*target, *index, *updates, 0, Scatter::add);
      ASSERT_EQ(expected, read<float>(*target)) << columns;
    }
}

TEST(IndexUpdate, SumsOfHalvesAreKeptInFloatWhateverTheBlock) {
  // The second target is much larger than the updates, so it is not copied.
  for (const int64_t rows : {2, 100000})
    for (const int64_t columns : {1, 3, 20})
      for (DType dtype : {f16, bf16}) {
        const Owned target(dtype, {rows, columns}), updates(dtype, {4000, columns}), index(i32, {4000});
        write(*updates, Values(static_cast<size_t>(4000 * columns), 1.0));
        write(*index, Values(4000, 1.0));
        write(*target, Values(static_cast<size_t>(rows * columns), 0.0));
        index_update(*target, *index, *updates, 0, Scatter::add);
        const Values got = read(*target);
        const double expected =
            dtype == f16 ? double{float(float16(4000.f))} : double{float(bfloat16(4000.f))};
        for (int64_t c = 0; c < columns; ++c) {
          EXPECT_EQ(0, got[static_cast<size_t>(c)]);
          EXPECT_EQ(expected, got[static_cast<size_t>(columns + c)]) << dtype << rows << columns;
        }
      }
}

TEST(IndexUpdate, FewIndicesIntoAHugeTargetAreSortedToo) {
  const Owned target(i32, {100003}), updates(i32, {5}), index(i64, {5});
  write(*target, Values(100003, 0.0));
  write(*index, Values{100002, 0, 7, 100002, 0});
  write(*updates, Values{1, 2, 3, 4, 5});
  index_update(*target, *index, *updates, 0, Scatter::set);
  EXPECT_EQ(5, target->as<int32_t>()[0]);
  EXPECT_EQ(3, target->as<int32_t>()[7]);
  EXPECT_EQ(4, target->as<int32_t>()[100002]);
}

TEST(Scatter, LargeOnesHaveTheBitsOfTheSerialOrder) {
  for (int axis : {0, 1}) {
    const Owned target(f32, {300, 400}), updates(f32, {300, 400}), index(i32, {300, 400});
    write_random(*target, -9, 9, 1);
    write_random(*updates, 1, 1 << 24, 2);
    write_random(*index, 0, 20, 3);
    std::vector<float> expected = read<float>(*target);
    const std::vector<float> u = read<float>(*updates);
    const Values j = read(*index);
    for (size_t i = 0; i < u.size(); ++i) {
      Shape at = position(target->shape, i);
      at[axis] = static_cast<int64_t>(j[i]);
      expected[linear(target->shape, at)] += u[i];
    }
    scatter(*target, *index, *updates, axis, Scatter::add);
    ASSERT_EQ(expected, read<float>(*target));
  }
}

TEST(Scatter, HalvesAreSummedInFloat) {
  for (DType dtype : {f16, bf16}) {
    // Added one at a time, every further 1 would be lost at 2048 (f16) or 256 (bf16).
    const Owned target(dtype, {2}), updates(dtype, {4000}), index(i64, {4000});
    write(*updates, Values(4000, 1.0));
    write(*index, Values(4000, 1.0));
    const float16 whole(4000.f);
    const double expected = dtype == f16 ? double{float(whole)} : double{float(bfloat16(4000.f))};
    write(*target, Values{5, 0});
    scatter(*target, *index, *updates, 0, Scatter::add);
    EXPECT_EQ((Values{5, expected}), read(*target));
    write(*target, Values{5, 0});
    index_update(*target, *index, *updates, 0, Scatter::add);
    EXPECT_EQ((Values{5, expected}), read(*target));
  }
}

TEST(Scatter, MaxAndMinKeepNaNs) {
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  for (Scatter how : {Scatter::max, Scatter::min})
    for (bool block : {false, true}) {
      const Owned target(f32, {3}), updates(f32, {3}), index(i64, {3});
      write(*target, Values{nan, 1, 2});
      write(*updates, Values{7, nan, how == Scatter::max ? inf : -inf});
      write(*index, Values{0, 1, 2});
      if (block) {
        index_update(*target, *index, *updates, 0, how);
      } else {
        scatter(*target, *index, *updates, 0, how);
      }
      const Values got = read(*target);
      EXPECT_TRUE(std::isnan(got[0]));
      EXPECT_TRUE(std::isnan(got[1]));
      EXPECT_EQ(how == Scatter::max ? inf : -inf, got[2]);
    }
}

TEST(Scatter, IntegersWrapAround) {
  const Owned target(i64, {1}), updates(i64, {1}), index(i64, {1});
  write(*target, std::vector<int64_t>{INT64_MAX});
  write(*updates, std::vector<int64_t>{1});
  write(*index, Values{0});
  scatter(*target, *index, *updates, 0, Scatter::add);
  EXPECT_EQ(INT64_MIN, *target->as<int64_t>());
  index_update(*target, *index, *updates, 0, Scatter::add);
  EXPECT_EQ(INT64_MIN + 1, *target->as<int64_t>());
}

TEST(Scatter, AnErrorLeavesTheTargetAsItWas) {
  const Owned target(f32, {3}), updates(f32, {3}), index(i64, {3});
  write(*target, Values{1, 2, 3});
  write(*updates, Values{7, 8, 9});
  write(*index, Values{0, 1, 3});
  const std::string range = "expected indices from -3 to 2 into axis 0 of size 3, got 3 at position (2,)";
  EXPECT_EQ("[scatter] " + range,
            test::error_of<InvalidArgument>([&] { scatter(*target, *index, *updates, 0); }));
  EXPECT_EQ("[index_update] " + range,
            test::error_of<InvalidArgument>([&] { index_update(*target, *index, *updates, 0); }));
  EXPECT_EQ("[put_nd] " + range, test::error_of<InvalidArgument>([&] {
              put_nd(*target, {&*index, 1}, {0}, *updates);
            }));
  EXPECT_EQ((Values{1, 2, 3}), read(*target));
}

TEST(Scatter, RefusesWhatDoesNotFit) {
  const Owned target(f32, {2, 3}), updates(f32, {3, 3}), index(i64, {3, 3}), flat(i64, {3}), row(f32, {3});
  write(*index, Values(9, 0.0));
  write(*flat, Values(3, 0.0));
  EXPECT_EQ("[scatter] expected indices no larger than shape (2, 3) except along axis 1, got shape (3, 3)",
            test::error_of<InvalidArgument>([&] { scatter(*target, *index, *updates, 1); }));
  EXPECT_EQ("[scatter] expected updates of shape (3,), got (3, 3)",
            test::error_of<InvalidArgument>([&] { scatter(*target, *flat, *updates, 1); }));
  EXPECT_EQ("[scatter] expected indices of rank 2, got shape (3,)",
            test::error_of<InvalidArgument>([&] { scatter(*target, *flat, *row, 1); }));
  EXPECT_EQ("[index_update] expected updates of shape (2, 3), got (3, 3)",
            test::error_of<InvalidArgument>([&] { index_update(*target, *flat, *updates, 1); }));
  EXPECT_EQ("[index_update] expected indices of rank 1, got shape (3, 3)",
            test::error_of<InvalidArgument>([&] { index_update(*target, *index, *updates, 0); }));
  EXPECT_NE("", test::error_of<InvalidArgument>([&] { put_nd(*target, {&*flat, 1}, {0}, *index); }));
  const Owned one(f32, {1, 3}), zero(i64, {1}), two(f32, {2, 3});
  write(*zero, Values{0});
  EXPECT_EQ("[put_nd] expected updates that broadcast to (1, 3), got (2, 3)",
            test::error_of<InvalidArgument>([&] {
              put_nd(*one, {&*zero, 1}, {0}, *two);
            }));
}

TEST(Scatter, OfNothingChangesNothing) {
  const Owned target(f32, {2, 3}), updates(f32, {0, 3}), index(i64, {0, 3}), none(i64, {0});
  write(*target, Values{1, 2, 3, 4, 5, 6});
  scatter(*target, *index, *updates, 0);
  index_update(*target, *none, *updates, 0);
  put_nd(*target, {&*none, 1}, {0}, *updates);
  EXPECT_EQ((Values{1, 2, 3, 4, 5, 6}), read(*target));
}

TEST(Embedding, ReadsRowsAndItsGradientAddsThemUp) {
  for (DType dtype : {f32, f64, f16, bf16})
    for (Layout layout : kTargets) {
      const Owned table(dtype, {7, 5}, layout), index(i32, {3, 4}, layout), out(dtype, {3, 4, 5}, layout);
      const Owned gradient(dtype, {3, 4, 5}, layout), back(dtype, {7, 5}, layout);
      write_random(*table, -50, 50, 1);
      write_random(*gradient, -9, 9, 2);
      write_random(*back, -9, 9, 3);  // overwrites the old contents
      write_random(*index, -7, 6, 4);
      embedding(*out, *table, *index);
      embedding_gradient(*back, *index, *gradient, 2);
      const Values rows = read(*table), got = read(*out), g = read(*gradient), j = read(*index);
      Values expected(35, 0.0);
      for (size_t i = 0; i < got.size(); ++i) {
        const size_t row = static_cast<size_t>(from_front(j[i / 5], 7));
        ASSERT_EQ(rows[row * 5 + i % 5], got[i]);
        if (row != 2) expected[row * 5 + i % 5] += g[i];
      }
      EXPECT_EQ(expected, read(*back)) << dtype;
    }
}

TEST(Embedding, RefusesWhatDoesNotFit) {
  const Owned cube(f32, {2, 2, 2}), table(f32, {3, 2}), index(i32, {1}), out(f32, {1, 2});
  write(*index, Values{3});
  EXPECT_EQ("[embedding] expected a table of rank 2, got shape (2, 2, 2)",
            test::error_of<InvalidArgument>([&] { embedding(*out, *cube, *index); }));
  EXPECT_EQ("[embedding] expected indices from -3 to 2 into axis 0 of size 3, got 3 at position (0,)",
            test::error_of<InvalidArgument>([&] { embedding(*out, *table, *index); }));
  EXPECT_EQ(
      "[embedding_gradient] expected indices from -3 to 2 into axis 0 of size 3, got 3 at position (0,)",
      test::error_of<InvalidArgument>([&] { embedding_gradient(*table, *index, *out); }));
  EXPECT_EQ("[embedding_gradient] expected a target of rank 2, got shape (2, 2, 2)",
            test::error_of<InvalidArgument>([&] { embedding_gradient(*cube, *index, *out); }));
  EXPECT_EQ("[embedding_gradient] expected a row to skip below 3, got 3",
            test::error_of<InvalidArgument>([&] { embedding_gradient(*table, *index, *out, 3); }));
  EXPECT_EQ("[embedding_gradient] expected a gradient of shape (1, 2), got (3, 2)",
            test::error_of<InvalidArgument>([&] { embedding_gradient(*table, *index, *table); }));
}

}  // namespace
}  // namespace mx
