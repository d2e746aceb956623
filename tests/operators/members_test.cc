// Member functions do the same as the free functions of the same names, with the same arguments. Also the
// overloads of those functions that C++ programs commonly use.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "operators/operators.h"
#include "tests/operators/registry_support.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::content_of;
using test::error_of;

void expect_same(const char* name, const NDArray& function, const NDArray& member) {
  EXPECT_EQ(content_of(function), content_of(member)) << name;
}

template <class A>
concept TakesABoolForTheCorrection = requires(const A& a) {
  a.variance(0, true);
};
static_assert(!TakesABoolForTheCorrection<NDArray>, "keep_dims is behind the correction");

TEST(Members, AreTheFunctionsOfTheSameNames) {
  const NDArray x = array({{1.5f, 2.f, 0.25f}, {3.f, 0.5f, 2.f}}), y = x.T();
  using Total = NDArray (NDArray::*)(const Axes&, bool, std::optional<DType>, std::source_location) const;
  using Reduce = NDArray (NDArray::*)(const Axes&, bool, std::source_location) const;
  using Unary = NDArray (NDArray::*)(std::source_location) const;
  const auto here = std::source_location::current();
  const std::tuple<const char*, Total, NDArray (*)(const Arg&, const Axes&, bool, std::optional<DType>)>
      totals[] = {
          {"sum", &NDArray::sum, sum}, {"prod", &NDArray::prod, prod}, {"mean", &NDArray::mean, mean}};
  for (const auto& [name, member, function] : totals) {
    expect_same(name, function(x, {}, false, {}), (x.*member)({}, false, {}, here));
    expect_same(name, function(y, {0, 1}, true, f64), (y.*member)({0, 1}, true, f64, here));
  }
  const std::tuple<const char*, Reduce, NDArray (*)(const Arg&, const Axes&, bool)> reductions[] = {
      {"max", &NDArray::max, max},
      {"min", &NDArray::min, min},
      {"argmax", &NDArray::argmax, argmax},
      {"argmin", &NDArray::argmin, argmin},
      {"any", &NDArray::any, any},
      {"all", &NDArray::all, all},
      {"count_nonzero", &NDArray::count_nonzero, count_nonzero},
      {"ptp", &NDArray::ptp, ptp},
      {"median", &NDArray::median, median}};
  for (const auto& [name, member, function] : reductions) {
    expect_same(name, function(x, {}, false), (x.*member)({}, false, here));
    expect_same(name, function(y, -1, true), (y.*member)(-1, true, here));
  }
  const std::tuple<const char*, Unary, NDArray (*)(const Arg&)> unaries[] = {
      {"abs", &NDArray::abs, abs},    {"sign", &NDArray::sign, sign},
      {"sqrt", &NDArray::sqrt, sqrt}, {"square", &NDArray::square, square},
      {"exp", &NDArray::exp, exp},    {"log", &NDArray::log, log},
      {"sin", &NDArray::sin, sin},    {"cos", &NDArray::cos, cos},
      {"tanh", &NDArray::tanh, tanh}, {"sigmoid", &NDArray::sigmoid, sigmoid},
      {"relu", &NDArray::relu, relu}};
  for (const auto& [name, member, function] : unaries) expect_same(name, function(y), (y.*member)(here));
  expect_same("var", var(x, 1, 0, true), x.variance(1, 0, true));
  expect_same("stddev", stddev(x), x.stddev());
  expect_same("norm", norm(x, 3, 0, true), x.norm(3, 0, true));
  expect_same("cumsum", cumsum(x, 1), x.cumsum(1));
  expect_same("cumprod", cumprod(x), x.cumprod());
  expect_same("sort", sort(x, 0, true), x.sort(0, true));
  expect_same("clamp", clamp(x, 0.5, 2), x.clamp(0.5, 2));
  expect_same("argsort", argsort(x), x.argsort());
  expect_same("pow", pow(x, 2.5), x.pow(2.5));
  expect_same("clip", clip(x, 0.5, 2), x.clip(0.5, 2));
  expect_same("round", round(x), x.round());
  expect_same("round", round(x, 1), x.round(1));
  expect_same("matmul", matmul(x, y), x.matmul(y));
  expect_same("dot", dot(x[0], x[1]), x[0].dot(x[1]));
}

TEST(Members, ChainAndNameThePlaceOfTheCall) {
  const NDArray x = arange(12, f32).reshape({3, 4});
  EXPECT_EQ(5.5f, x.mean().item<float>());
  EXPECT_EQ((std::vector<float>{1.5f, 5.5f, 9.5f}), x.mean(1).to_vector<float>());
  EXPECT_EQ((Shape{4, 1}), x.T().max(1, true).shape());
  EXPECT_EQ(22, (x[Slice{1, 2}].sum().item<float>()));
  const std::string text = error_of<InvalidArgument>([&] { x.sum(5); });
  EXPECT_TRUE(contains(text, "[sum]") && contains(text, "members_test.cc:")) << text;
}

TEST(Members, AxesAndArraysInTheFormsThatProgramsHaveThem) {
  const NDArray x = arange(24).reshape({2, 3, 4});
  const std::vector<int64_t> axes = {0, 2};
  const size_t axis = 1;
  EXPECT_EQ((Shape{3}), sum(x, axes).shape());
  EXPECT_EQ((Shape{3}), sum(x, std::span<const int64_t>(axes)).shape());
  EXPECT_EQ((Shape{2, 4}), sum(x, axis).shape());
  EXPECT_EQ((Shape{4}), sum(x, {0, axis}).shape());
  const NDArray a = ones({2, 3}), b = zeros({2, 3});
  expect_same("concat", concat({a, b}), concat(a, b));
  expect_same("concat", concat({a, b}, 1), concat(a, b, 1));
  expect_same("concat of views", concat({a[0], b[1]}), concat(a[0], b[1]));
  expect_same("stack", stack({a, b}, -1), stack(a, b, -1));
  expect_same("hstack", hstack({a, b}), hstack(a, b));
  expect_same("vstack", vstack({a, b}), vstack(a, b));
}

}  // namespace
}  // namespace mx
