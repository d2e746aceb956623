// Reading at indices, compared with loops over positions.
#include <gtest/gtest.h>

#include <limits>

#include "engine/base/error.h"
#include "operators/kernels/index.h"
#include "operators/kernels/index_range.h"
#include "tests/operators/layout.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using namespace kernels;
using namespace testing;

using Values = std::vector<double>;

int64_t resolved(double index, int64_t size, IndexMode mode) {
  const int64_t i = static_cast<int64_t>(index);
  if (mode == IndexMode::raise) return i < 0 ? i + size : i;
  if (mode == IndexMode::clip) return std::max<int64_t>(0, std::min(i, size - 1));
  return ((i % size) + size) % size;
}

Values take_oracle(const Tensor& source, const Tensor& indices, int axis, IndexMode mode) {
  const Values from = read(source), index = read(indices);
  const Shape shape = take_shape(source.shape, indices.shape, axis);
  Values result(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < result.size(); ++i) {
    const Shape at = position(shape, i);
    Shape j, s;
    for (int d = 0; d < axis; ++d) s.push_back(at[d]);
    for (int d = 0; d < indices.rank(); ++d) j.push_back(at[axis + d]);
    s.push_back(resolved(index[linear(indices.shape, j)], source.shape[axis], mode));
    for (int d = axis + 1; d < source.rank(); ++d) s.push_back(at[indices.rank() + d - 1]);
    result[i] = from[linear(source.shape, s)];
  }
  return result;
}

TEST(Take, ReadsWhatALoopReadsInEveryTypeAndLayout) {
  uint64_t seed = 1;
  for (DType dtype : kAllDTypes)
    for (DType integer : {i32, i64})
      for (Layout source_layout : kLayouts)
        for (Layout target_layout : kTargets)
          for (int axis : {0, 1, 2}) {
            const Shape index_shape = axis == 0 ? Shape{5} : axis == 1 ? Shape{2, 3} : Shape{};
            const Owned source(dtype, {3, 4, 5}, source_layout);
            const Owned index(integer, index_shape, kLayouts[seed % 5]);
            const Owned target(dtype, take_shape(source->shape, index_shape, axis), target_layout);
            write_random(*source, 0, 100, ++seed);
            write_random(*index, -source->shape[axis], source->shape[axis] - 1, seed);
            take(*target, *source, *index, axis - 3 * static_cast<int>(seed % 2));
            ASSERT_EQ(take_oracle(*source, *index, axis, IndexMode::raise), read(*target)) << dtype << axis;
          }
}

TEST(Take, ClipAndWrapAreThoseOfNumPy) {
  const Owned source(f32, {4}), index(i64, {8}), target(f32, {8});
  write(*source, Values{10, 11, 12, 13});
  write(*index, Values{-9, -5, -1, 0, 3, 4, 9, -4});
  take(*target, *source, *index, 0, IndexMode::clip);
  EXPECT_EQ((Values{10, 10, 10, 10, 13, 13, 13, 10}), read(*target));
  take(*target, *source, *index, 0, IndexMode::wrap);
  EXPECT_EQ((Values{13, 13, 13, 10, 13, 10, 11, 10}), read(*target));
  write(*index, std::vector<int64_t>{INT64_MIN, INT64_MAX, 0, 0, 0, 0, 0, 0});
  take(*target, *source, *index, 0, IndexMode::wrap);
  EXPECT_EQ((Values{10, 13, 10, 10, 10, 10, 10, 10}), read(*target));
  take(*target, *source, *index, 0, IndexMode::clip);
  EXPECT_EQ((Values{10, 13, 10, 10, 10, 10, 10, 10}), read(*target));
}

TEST(Take, LargeOnesAgreeWithTheLoop) {
  const Owned source(f32, {300, 70}), index(i32, {4000}), target(f32, {4000, 70}), columns(f32, {300, 4000});
  write_random(*source, -1000, 1000, 5);
  write_random(*index, -70, 69, 6);
  take(*target, *source, *index, 0);
  EXPECT_EQ(take_oracle(*source, *index, 0, IndexMode::raise), read(*target));
  take(*columns, *source, *index, 1);
  EXPECT_EQ(take_oracle(*source, *index, 1, IndexMode::raise), read(*columns));
}

TEST(Take, KeepsEveryBitOfAnElement) {
  const Owned source(f64, {2}), index(i64, {2}), target(f64, {2});
  const uint64_t bits[2] = {0x7ff4000000000001, 0x8000000000000000};  // a signalling NaN, -0
  std::memcpy(source->data, bits, sizeof bits);
  write(*index, Values{1, 0});
  take(*target, *source, *index, 0);
  EXPECT_EQ(0, std::memcmp(target->as<uint64_t>(), bits + 1, 8));
  EXPECT_EQ(0, std::memcmp(target->as<uint64_t>() + 1, bits, 8));
}

TEST(Take, OfNothingIsNothing) {
  const Owned source(f32, {0, 3}), none(i64, {0}), target(f32, {0, 3});
  take(*target, *source, *none, 0);
  const Owned some(i64, {2}), wide(f32, {0, 2});
  write(*some, Values{2, -3});
  take(*wide, *source, *some, 1);
}

TEST(Take, RefusesAnIndexOutOfRangeByNameAndPlace) {
  const Owned source(f32, {4, 3}), index(i64, {2, 2}, Layout::transposed), target(f32, {4, 2, 2});
  write(*index, Values{0, 2, 3, -4});
  const auto run = [&] { take(*target, *source, *index, 1); };
  EXPECT_EQ("[take] expected indices from -3 to 2 into axis 1 of size 3, got 3 at position (1, 0)",
            test::error_of<InvalidArgument>(run));
  write(*index, Values{0, -4, 3, -4});
  EXPECT_EQ("[take] expected indices from -3 to 2 into axis 1 of size 3, got -4 at position (0, 1)",
            test::error_of<InvalidArgument>(run));
  const Owned empty(f32, {0}), out(f32, {2, 2});
  EXPECT_EQ("[take] expected no indices for axis 0 of size 0, got 4",
            test::error_of<InvalidArgument>([&] { take(*out, *empty, *index, 0, IndexMode::wrap); }));
}

TEST(Take, RefusesWhatDoesNotFit) {
  const Owned source(f32, {4, 3}), index(i64, {2}), target(f32, {4, 2}), other(f64, {4, 2}), real(f32, {2});
  write(*index, Values{0, 0});
  EXPECT_EQ("[take] expected a target of shape (2, 3), got (4, 2)",
            test::error_of<InvalidArgument>([&] { take(*target, *source, *index, 0); }));
  EXPECT_EQ("[take] expected arrays of the same type, got f64 and f32",
            test::error_of<InvalidArgument>([&] { take(*other, *source, *index, 1); }));
  EXPECT_EQ("[take] expected indices of type i32 or i64, got f32",
            test::error_of<InvalidArgument>([&] { take(*target, *source, *real, 1); }));
  EXPECT_NE("", test::error_of<InvalidArgument>([&] { take(*target, *source, *index, 2); }));
}

TEST(Gather, ReadsWhatALoopReads) {
  uint64_t seed = 40;
  for (DType dtype : kAllDTypes)
    for (Layout source_layout : kLayouts)
      for (Layout target_layout : kTargets)
        for (int axis : {0, 1, 2}) {
          Shape shape{2, 4, 3};
          shape[axis] = 6;
          const Owned source(dtype, {3, 4, 5}, source_layout);
          const Owned index(seed % 2 ? i32 : i64, shape, kLayouts[seed % 5]),
              target(dtype, shape, target_layout);
          write_random(*source, 0, 100, ++seed);
          const int64_t size = source->shape[axis];
          write_random(*index, -size, size - 1, seed);
          gather(*target, *source, *index, axis);
          const Values from = read(*source), j = read(*index), got = read(*target);
          for (size_t i = 0; i < got.size(); ++i) {
            Shape at = position(shape, i);
            at[axis] = resolved(j[i], size, IndexMode::raise);
            ASSERT_EQ(from[linear(source->shape, at)], got[i]) << dtype << axis;
          }
        }
}

TEST(Gather, RefusesWhatDoesNotFit) {
  const Owned source(f32, {2, 3}), index(i64, {3, 1}), target(f32, {3, 1}), flat(i64, {2}), row(f32, {2});
  write(*index, Values{0, 0, 0});
  EXPECT_EQ("[gather] expected indices no larger than shape (2, 3) except along axis 1, got shape (3, 1)",
            test::error_of<InvalidArgument>([&] { gather(*target, *source, *index, 1); }));
  EXPECT_EQ("[gather] expected indices of rank 2, got shape (2,)",
            test::error_of<InvalidArgument>([&] { gather(*row, *source, *flat, 1); }));
  write(*index, Values{0, 1, 2});
  EXPECT_EQ("[gather] expected indices from -2 to 1 into axis 0 of size 2, got 2 at position (2, 0)",
            test::error_of<InvalidArgument>([&] { gather(*target, *source, *index, 0); }));
}

TEST(GatherNd, TheIndicesStandWhereNumPyPutsThem) {
  const Owned a(i64, {2, 1}), b(i32, {3});
  const Tensor both[2] = {*a, *b};
  EXPECT_EQ((Shape{4, 2, 3, 7}), gather_nd_shape({4, 5, 6, 7}, both, {1, 2}));
  EXPECT_EQ((Shape{2, 3, 5, 7}), gather_nd_shape({4, 5, 6, 7}, both, {0, 2}));
  EXPECT_EQ((Shape{5, 2, 3, 7}), gather_nd_shape({4, 5, 6, 7}, both, {0, 2}, 1));
  EXPECT_EQ((Shape{5, 7, 2, 3}), gather_nd_shape({4, 5, 6, 7}, both, {-4, -2}, 2));
}

TEST(GatherNd, ReadsWhatALoopReads) {
  uint64_t seed = 80;
  for (DType dtype : kAllDTypes)
    for (Layout source_layout : kLayouts)
      for (int second : {1, 2, 3}) {
        const Owned source(dtype, {4, 5, 6, 3}, source_layout);
        const Owned a(i64, {2, 1}, kLayouts[seed % 5]), b(i32, {3}, kTargets[seed % 4]);
        write_random(*source, 0, 100, ++seed);
        write_random(*a, -4, 3, seed);
        write_random(*b, -source->shape[second], source->shape[second] - 1, seed);
        const Tensor both[2] = {*a, *b};
        const Shape shape = gather_nd_shape(source->shape, both, {0, second});
        const Owned target(dtype, shape, kTargets[seed % 4]);
        gather_nd(*target, *source, both, {0, second});
        const Values from = read(*source), ia = read(*a), ib = read(*b), got = read(*target);
        for (size_t i = 0; i < got.size(); ++i) {
          const Shape at = position(shape, i);
          Shape s{resolved(ia[static_cast<size_t>(at[0])], 4, IndexMode::raise)};
          int next = 2;
          for (int d = 1; d < 4; ++d)
            s.push_back(d == second
                            ? resolved(ib[static_cast<size_t>(at[1])], source->shape[d], IndexMode::raise)
                            : at[next++]);
          ASSERT_EQ(from[linear(source->shape, s)], got[i]) << dtype << second;
        }
      }
}

TEST(GatherNd, RefusesWhatDoesNotFit) {
  const Owned source(f32, {4, 5}), a(i64, {2}), b(i64, {3}), target(f32, {2});
  write(*a, Values{0, 4});
  write(*b, Values{0, 0, 0});
  const Tensor both[2] = {*a, *b}, twice[2] = {*a, *a};
  EXPECT_NE("", test::error_of<InvalidArgument>([&] { gather_nd(*target, *source, both, {0, 1}); }));
  EXPECT_EQ("[gather_nd] expected axes that are distinct and ascending, got (1, 0)",
            test::error_of<InvalidArgument>([&] {
              gather_nd(*target, *source, twice, {1, 0});
            }));
  EXPECT_EQ("[gather_nd] expected one array of indices per axis, got 2 for axes (0,)",
            test::error_of<InvalidArgument>([&] { gather_nd(*target, *source, twice, {0}); }));
  EXPECT_EQ("[gather_nd] expected indices from -4 to 3 into axis 0 of size 4, got 4 at position (1,)",
            test::error_of<InvalidArgument>([&] {
              gather_nd(*target, *source, twice, {0, 1});
            }));
  EXPECT_EQ("[gather_nd] expected a position up to 0, got 1", test::error_of<InvalidArgument>([&] {
              gather_nd(*target, *source, twice, {0, 1}, 1);
            }));
}

TEST(OneHot, SetsOnePerRow) {
  for (DType dtype : kAllDTypes)
    for (Layout layout : kTargets) {
      const Owned index(i32, {2, 3}, layout), target(dtype, {2, 3, 4}, layout);
      write_random(*index, 0, 3, 3);
      one_hot(*target, *index);
      const Values classes = read(*index), got = read(*target);
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_EQ(classes[i / 4] == static_cast<double>(i % 4) ? 1 : 0, got[i]) << dtype;
    }
}

TEST(OneHot, RefusesClassesThatAreNotThere) {
  const Owned index(i32, {2}), target(f32, {2, 4}), flat(f32, {2});
  write(*index, Values{0, -1});
  EXPECT_EQ("[one_hot] expected indices from 0 to 3 into axis 1 of size 4, got -1 at position (1,)",
            test::error_of<InvalidArgument>([&] { one_hot(*target, *index); }));
  EXPECT_EQ("[one_hot] expected a target of rank 2, got shape (2,)",
            test::error_of<InvalidArgument>([&] { one_hot(*flat, *index); }));
}

// Puts one index out of range at each position of the vectors and the remainder; the bounds include some
// outside the range of the index type.
template <class I>
void check_range() {
  constexpr I kLeast = std::numeric_limits<I>::min(), kMost = std::numeric_limits<I>::max();
  for (const int64_t n : {1, 5, 16, 37}) {
    std::vector<I> indices(static_cast<size_t>(n), 3);
    const auto outside = [&](int64_t lowest, int64_t size) {
      return kernels::detail::any_outside(indices.data(), n, lowest, size);
    };
    EXPECT_FALSE(outside(3, 4));
    EXPECT_TRUE(outside(4, 5));
    EXPECT_TRUE(outside(0, 3));
    for (I& index : indices) {
      for (const I far : {I{-11}, I{10}, kLeast, kMost}) {
        index = far;
        EXPECT_TRUE(outside(-10, 10)) << far;
      }
      for (const I near : {I{-10}, I{9}, I{0}}) {
        index = near;
        EXPECT_FALSE(outside(-10, 10)) << near;
      }
      index = kMost;
      EXPECT_TRUE(outside(-int64_t{kMost}, kMost));  // the size is the first index that is out of range
      EXPECT_EQ(sizeof(I) == 8, outside(-(int64_t{1} << 40), int64_t{1} << 40));
      index = kLeast;
      EXPECT_EQ(sizeof(I) == 8, outside(-(int64_t{1} << 40), int64_t{1} << 40));
      index = 3;
    }
  }
}
TEST(IndexRange, FindsWhatIsOutside) {
  check_range<int32_t>();
  check_range<int64_t>();
}

}  // namespace
}  // namespace mx
