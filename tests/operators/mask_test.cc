// Selection by a mask, compared with loops in row-major order.
#include "operators/kernels/mask.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/error.h"
#include "tests/operators/layout.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using namespace kernels;
using namespace testing;

using Values = std::vector<double>;

// The second is larger than one piece of the parallel loops.
const Shape kShapes[] = {{3, 4, 5}, {40, 1, 1100}, {7}, {}, {0, 3}};

TEST(Nonzero, FindsWhatALoopFinds) {
  for (DType dtype : kAllDTypes)
    for (Layout layout : kLayouts)
      for (const Shape& shape : kShapes) {
        const Owned source(dtype, shape, layout);
        write_random(*source, 0, 1, 5);
        const Values values = read(*source);
        Values expected;
        int64_t count = 0;
        for (size_t i = 0; i < values.size(); ++i) {
          if (values[i] == 0) continue;
          ++count;
          for (int64_t at : position(shape, i)) expected.push_back(static_cast<double>(at));
        }
        ASSERT_EQ(count, count_nonzero(*source)) << dtype << shape;
        const Owned target(i64, {count, shape.rank()}, layout == Layout::broadcast ? Layout::gaps : layout);
        nonzero(*target, *source);
        ASSERT_EQ(expected, read(*target)) << dtype << shape;
      }
}

TEST(Nonzero, NaNIsNotZeroAndMinusZeroIs) {
  for (DType dtype : {f32, f64, f16, bf16}) {
    const Owned source(dtype, {4});
    write(*source, Values{std::nan(""), -0.0, 0.0, 0x1p-24});
    EXPECT_EQ(2, count_nonzero(*source)) << dtype;
  }
}

TEST(Masked, SelectAndScatterAreThoseOfALoop) {
  for (DType dtype : kAllDTypes)
    for (Layout layout : kTargets)
      for (Layout mask_layout : kLayouts)
        for (const Shape& shape : kShapes) {
          const Owned source(dtype, shape, layout), mask(bool_, shape, mask_layout);
          write_random(*source, 0, 100, 1);
          write_random(*mask, 0, 1, 2);
          const Values values = read(*source), chosen = read(*mask);
          Values expected;
          for (size_t i = 0; i < values.size(); ++i)
            if (chosen[i] != 0) expected.push_back(values[i]);
          const int64_t count = static_cast<int64_t>(expected.size());
          const Owned packed(dtype, {count}, mask_layout == Layout::broadcast ? Layout::gaps : mask_layout);
          masked_select(*packed, *source, *mask);
          ASSERT_EQ(expected, read(*packed)) << dtype << shape;

          const Owned from(dtype, {count + 3}, layout);
          write_random(*from, 0, 100, 3);
          const Values updates = read(*from);
          Values after = values;
          size_t next = 0;
          for (size_t i = 0; i < after.size(); ++i)
            if (chosen[i] != 0) after[i] = updates[next++];
          masked_scatter(*source, *mask, *from);
          ASSERT_EQ(after, read(*source)) << dtype << shape;
        }
}

TEST(Masked, FillWritesOnlyWhereTheMaskIsSet) {
  for (DType dtype : kAllDTypes)
    for (Layout layout : kTargets)
      for (Layout mask_layout : kLayouts)
        for (const Shape& shape : kShapes) {
          const Owned target(dtype, shape, layout), mask(bool_, shape, mask_layout);
          write_random(*target, 0, 100, 1);
          write_random(*mask, 0, 1, 2);
          Values expected = read(*target);
          const Values chosen = read(*mask);
          for (size_t i = 0; i < expected.size(); ++i)
            if (chosen[i] != 0) expected[i] = dtype == bool_ ? 1 : 7;
          masked_fill(*target, *mask, 7.0);
          ASSERT_EQ(expected, read(*target)) << dtype << shape;
          masked_fill(*target, *mask, int64_t{7});
          ASSERT_EQ(expected, read(*target)) << dtype << shape;
        }
}

TEST(Masked, RefusesWhatDoesNotFit) {
  const Owned a(f32, {2, 2}), mask(bool_, {2, 2}), other(bool_, {2}), bytes(u8, {2, 2}), small(f32, {1});
  const Owned doubles(f64, {4}), rows(i32, {4, 2}), few(i64, {3, 2});
  write(*mask, Values{1, 1, 1, 1});
  write(*a, Values{1, 1, 1, 1});
  const auto text = [](auto f) { return test::error_of<InvalidArgument>(f); };
  EXPECT_EQ("[masked_fill] expected a mask of shape (2, 2), got (2,)",
            text([&] { masked_fill(*a, *other, 1.0); }));
  EXPECT_EQ("[masked_fill] expected a mask of type bool, got u8",
            text([&] { masked_fill(*a, *bytes, 1.0); }));
  EXPECT_EQ("[masked_select] expected a target of shape (4,), got (1,)",
            text([&] { masked_select(*small, *a, *mask); }));
  EXPECT_EQ("[masked_select] expected arrays of the same type, got f64 and f32",
            text([&] { masked_select(*doubles, *a, *mask); }));
  EXPECT_EQ(
      "[masked_scatter] expected a source of at least 4 elements, one for each true element of the mask, got "
      "shape (1,)",
      text([&] { masked_scatter(*a, *mask, *small); }));
  EXPECT_EQ("[nonzero] expected a target of type i64, got i32", text([&] { nonzero(*rows, *a); }));
  EXPECT_EQ("[nonzero] expected a target of shape (4, 2), got (3, 2)", text([&] { nonzero(*few, *a); }));
}

}  // namespace
}  // namespace mx
