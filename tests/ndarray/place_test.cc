// A failure that is thrown from a wait names the source location of the user's call, not one inside the
// library.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "ndarray/ndarray.h"
#include "tests/support/errors.h"
#include "tests/support/shortage.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;
using test::Shortage;

std::string here(int line) { return "place_test.cc:" + std::to_string(line); }

TEST(Place, OfCreation) {
  const Context v = virt(0);
  struct Case {
    std::function<NDArray()> make;
    int line;
  };
  const Case cases[] = {
      {[&] { return zeros({1 << 20}, f32, v); }, __LINE__},
      {[&] { return ones({1 << 20}, f32, v); }, __LINE__},
      {[&] { return full({1 << 20}, 2, f32, v); }, __LINE__},
      {[&] { return zeros_like(empty({1 << 20}, f32, v)); }, __LINE__},
      {[&] { return ones_like(empty({1 << 20}, f32, v)); }, __LINE__},
      {[&] { return full_like(empty({1 << 20}, f32, v), 2); }, __LINE__},
      {[&] { return arange(0, 1 << 20, 1, f32, v); }, __LINE__},
      {[&] { return linspace(0, 1, 1 << 20, f32, v); }, __LINE__},
      {[&] { return eye(1 << 10, 1 << 10, f32, v); }, __LINE__},
  };
  wait_all();
  const Shortage shortage;
  for (const Case& c : cases) {
    const NDArray made = c.make();
    const std::string text = error_of<OutOfMemory>([&] { made.wait(); });
    EXPECT_TRUE(contains(text, here(c.line))) << text;
    EXPECT_FALSE(contains(text, "create.cc")) << text;
    EXPECT_TRUE(contains(text, "f32 (1048576,)") || contains(text, "f32 (1024, 1024)")) << text;
  }
  EXPECT_THROW(wait_all(), OutOfMemory);
}

TEST(Place, OfAssignmentsToAnIndex) {
  const auto expect_here = [](const NDArray& a, int line) {
    const std::string text = error_of<OutOfMemory>([&] { a.wait(); });
    EXPECT_TRUE(contains(text, here(line))) << text;
    EXPECT_FALSE(contains(text, "view.cc") || contains(text, "ndarray.h")) << text;
  };
  const NDArray row = ones({1 << 20}, f32, virt(0));
  row.wait();
  const auto fresh = [] { return empty({2, 1 << 20}, f32, virt(0)); };
  const NDArray a = fresh(), b = fresh(), c = fresh(), d = fresh();
  wait_all();
  {
    const Shortage shortage;
    a[0] = row;
    expect_here(a, __LINE__ - 1);
    b[0] = 3;
    expect_here(b, __LINE__ - 1);
    c[0] = row[{colon}];
    expect_here(c, __LINE__ - 1);
    for (NDArray entry : d) entry.copy_from(row);
    expect_here(d, __LINE__ - 1);
  }
  EXPECT_THROW(wait_all(), OutOfMemory);
}

}  // namespace
}  // namespace mx
