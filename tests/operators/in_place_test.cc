// Operators that write into an existing array: all forms of a += b, and the memory that they must not write.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "operators/operators.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;
using Integers = std::vector<int64_t>;

NDArray integers() { return array<int64_t>({{12, 7}, {5, 9}}); }

TEST(InPlaceForms, GiveWhatTheOperatorGivesForArraysViewsAndNumbers) {
  const NDArray b = array<int64_t>({2, 3});
#define EXPECT_FORM(op)                                                                 \
  {                                                                                     \
    NDArray x = integers();                                                             \
    const NDArray same = x;                                                             \
    NDArray& back = x op## = b;                                                         \
    EXPECT_EQ(&x, &back);                                                               \
    EXPECT_EQ((integers() op b).to_vector<int64_t>(), same.to_vector<int64_t>());       \
    x op## = 2;                                                                         \
    EXPECT_EQ(((integers() op b)op 2).to_vector<int64_t>(), same.to_vector<int64_t>()); \
    NDArray y = integers();                                                             \
    y[1] op## = b;                                                                      \
    auto column = y[{colon, 0}];                                                        \
    column op## = 2;                                                                    \
    NDArray expected = integers();                                                      \
    expected[1] = expected[1] op b;                                                     \
    expected[{colon, 0}] = expected[{colon, 0}] op 2;                                   \
    EXPECT_EQ(expected.to_vector<int64_t>(), y.to_vector<int64_t>());                   \
    NDArray z = integers();                                                             \
    z[array<int64_t>({1, 0})] op## = b;                                                 \
    EXPECT_EQ((integers() op b).to_vector<int64_t>(), z.to_vector<int64_t>());          \
  }
  EXPECT_FORM(+)
  EXPECT_FORM(-)
  EXPECT_FORM(*)
  EXPECT_FORM(%)
  EXPECT_FORM(&)
  EXPECT_FORM(|)
  EXPECT_FORM(^)
  EXPECT_FORM(<<)
  EXPECT_FORM(>>)
#undef EXPECT_FORM
  NDArray x = array({8.f, 6.f});
  x /= 2;
  x[0] /= x[1];
  x.slice(0, {1, {}}) /= 3;
  EXPECT_EQ((std::vector<float>{4.f / 3, 1}), x.to_vector<float>());
}

TEST(InPlaceForms, ViewsWithoutANameAreWrittenThrough) {
  NDArray a = integers();
  a.transpose() += array<int64_t>({100, 200});
  EXPECT_EQ((Integers{112, 107, 205, 209}), a.to_vector<int64_t>());
  a.diagonal() -= 100;
  a.slice(0, {1, {}}) %= 10;
  a.select(0, 0).slice(0, {1, {}}) *= 2;
  EXPECT_EQ((Integers{12, 214, 5, 9}), a.to_vector<int64_t>());
  a.reshape({4}) |= 1;
  a.flatten() ^= 1;
  a.expand_dims(0) <<= 1;
  a.swap_axes(0, 1) >>= 1;
  a.squeeze() &= 14;
  EXPECT_EQ((Integers{12, 6, 4, 8}), a.to_vector<int64_t>());
  a.transpose() += a;
  EXPECT_EQ((Integers{24, 10, 10, 16}), a.to_vector<int64_t>()) << "as if copied first";
  const NDArray row = a[1].detach() += 1;
  EXPECT_TRUE(row.shares_memory(a));
}

TEST(InPlaceForms, KeepTypeAndShapeOrRefuse) {
  NDArray bits = array<int64_t>({1, 0}).to(bool_);
  bits &= true;
  const NDArray& same = bits;  // (Clang warns of `bits ^= bits`.)
  bits ^= same;
  EXPECT_EQ(bool_, bits.dtype());
  NDArray i = ones({2}, i32);
  EXPECT_THROW(i /= 2, InvalidArgument);
  EXPECT_THROW(i %= 0.5, InvalidArgument);
  EXPECT_THROW(i <<= ones({3}, i32), InvalidArgument);
  EXPECT_THROW(i &= ones({2, 2}, i32), InvalidArgument);
  NDArray f = ones({2});
  EXPECT_THROW(f &= 1, InvalidArgument);
  EXPECT_THROW(f <<= 1, InvalidArgument);
  EXPECT_EQ((std::vector<float>{1, 1}), f.to_vector<float>());
  f *= 5.5;
  f %= 2;
  EXPECT_EQ((std::vector<float>{1.5, 1.5}), f.to_vector<float>());
}

TEST(WriteTargets, AViewThatRepeatsElementsIsRefusedByOperators) {
  for (const Context context : {cpu(), virt(0)}) {
    const NDArray one = ones({1, 3}, f32, context);
    NDArray wide = one.broadcast_to({1000, 3});
    const NDArray y = zeros({1000, 3}, f32, context), index = zeros({1}, i64, context);
    const auto refused = [&](const char* op, const auto& write) {
      const std::string text = error_of<InvalidArgument>(write);
      EXPECT_TRUE(contains(text, "expected a target whose elements do not share memory")) << text;
      EXPECT_TRUE(contains(text, std::string("[") + op + "]")) << text;
      EXPECT_TRUE(contains(text, "shape (1000, 3) and strides (0, 1)")) << text;
    };
    refused("add_scalar", [&] { wide += 1; });
    refused("mul", [&] { wide *= y; });
    refused("add_scalar", [&] { one.broadcast_to({1000, 3}) += 1; });
    refused("add", [&] { wide[{colon}] += y; });
    refused("sub", [&] { wide -= NDArray(wide); });
    refused("index_add", [&] { index_add_(wide, index, y.slice(0, {0, 1})); });
    refused("index_copy", [&] { index_copy_(wide, index, y.slice(0, {0, 1})); });
    refused("scatter", [&] { scatter_(wide, zeros({1, 1}, i64, context), ones({1, 1}, f32, context), 0); });
    refused("put_nd", [&] { wide[index] = 2; });
    refused("put_nd", [&] { wide[index] += 2; });
    refused("masked_scatter", [&] { masked_scatter_(wide, y == 0, y); });
    const NDArray inputs[] = {y};
    refused("exp", [&] { call_into(wide, *find_operator("exp"), {}, inputs); });
    refused("copy_from", [&] { shuffle_(wide); });
    EXPECT_EQ((std::vector<float>(3, 1)), one.to_vector<float>()) << "nothing has been written";
  }
}

}  // namespace
}  // namespace mx
