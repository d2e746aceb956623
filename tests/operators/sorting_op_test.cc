// Operators that sort and search, compared with plain loops.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "operators/operators.h"
#include "tests/operators/gradient_support.h"
#include "tests/operators/oracle.h"
#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::axis_of;
using test::contains;
using test::each_position;
using test::error_of;
using test::expect_samples;
using test::Host;
using test::OracleCase;

/// Returns true if a comes before b in ascending (descending) order, with NaN last.
bool comes_before(double a, double b, bool descending) {
  if (std::isnan(a) || std::isnan(b)) return !std::isnan(a) && std::isnan(b);
  return descending ? a > b : a < b;
}

/// Returns values and indices along an axis, the first k of the order.
std::vector<Host> sorted(const Host& x, int axis, bool descending, int64_t k) {
  Shape shape = x.shape;
  shape[axis] = k;
  Host values(shape), indices(shape);
  each_position(shape, [&](const Shape& at) {
    std::vector<int64_t> order(static_cast<size_t>(x.shape[axis]));
    std::iota(order.begin(), order.end(), int64_t{0});
    Shape place = at;
    const auto value = [&](int64_t i) {
      place[axis] = i;
      return x[place];
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return comes_before(value(a), value(b), descending); });
    indices[at] = static_cast<double>(order[static_cast<size_t>(at[axis])]);
    values[at] = value(order[static_cast<size_t>(at[axis])]);
  });
  return {values, indices};
}

TEST(Sort, PutsInOrder) {
  for (size_t output : {size_t{0}, size_t{1}}) {
    expect_samples(output == 0 ? "sort" : "argsort", [&](const OracleCase& c) {
      const int axis = static_cast<int>(axis_of(c.i("axis"), c.in[0].shape.rank()));
      return std::vector<Host>{sorted(c.in[0], axis, c.b("descending"), c.in[0].shape[axis])[output]};
    });
  }
  expect_samples("topk", [](const OracleCase& c) {
    const int axis = static_cast<int>(axis_of(c.i("axis"), c.in[0].shape.rank()));
    return sorted(c.in[0], axis, c.b("largest"), c.i("k"));
  });
}

TEST(Sort, SpecialValuesAndEqualsHaveOneOrder) {
  const NDArray x = array({1.f, NAN, -INFINITY, 0.f, -0.f, INFINITY, NAN, 1.f});
  EXPECT_EQ((std::vector<int64_t>{2, 3, 4, 0, 7, 5, 1, 6}), argsort(x).to_vector<int64_t>());
  EXPECT_EQ((std::vector<int64_t>{5, 0, 7, 3, 4, 2, 1, 6}), argsort(x, 0, true).to_vector<int64_t>());
  const TopK top = topk(x, 2);
  EXPECT_EQ((std::vector<int64_t>{5, 0}), top.indices.to_vector<int64_t>());
  EXPECT_EQ((std::vector<float>{INFINITY, 1}), top.values.to_vector<float>());
  EXPECT_EQ(0, topk(x, 0).values.numel());
  EXPECT_EQ(Shape({0, 3}), sort(ones({0, 3})).shape());
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { topk(x, 9); }), "k from 0 to 8"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { sort(x, 1); }), "axis"));
}

TEST(Sort, AnArrayOfRankZeroIsOneElement) {
  const NDArray x = full({}, 3);
  for (int axis : {0, -1}) {
    EXPECT_EQ(3, sort(x, axis).item<float>());
    EXPECT_EQ(0, argsort(x, axis, true).item<int64_t>());
    const TopK top = topk(x, 1, axis);
    EXPECT_EQ(Shape{}, top.values.shape());
    EXPECT_EQ(3, top.values.item<float>());
    EXPECT_EQ(0, top.indices.item<int64_t>());
  }
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { sort(x, 1); }), "axis from -1 to 0"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { topk(x, 2); }), "k = 1 for an array of rank 0"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { topk(x, 0); }), "k = 1"));
  for (const char* name : {"sort", "topk"}) {
    const Operator& op = *find_operator(name);
    const Attrs attrs = Attrs::from_map(op.attrs, {}, name);
    const std::vector<NDArray> in{x}, out = call(op, attrs, in);
    std::vector<NDArray> heads{full({}, 7)};
    if (out.size() == 2) heads.emplace_back();
    EXPECT_EQ(7, test::gradients_of(op, attrs, in, out, heads, {1})[0].item<float>()) << name;
  }
}

TEST(Take, AnArrayOfRankZeroHasNoAxis) {
  const NDArray x = full({}, 3);
  for (const auto& f :
       {+[](const NDArray& a) { take(a, arange(1)); }, +[](const NDArray& a) { take(a, arange(1), -1); },
        +[](const NDArray& a) { a.slice(0, {}); }, +[](const NDArray& a) { sum(a, 0); }}) {
    const std::string text = error_of<InvalidArgument>([&] { f(x); });
    EXPECT_TRUE(contains(text, "rank 0, which has no axes")) << text;
  }
}

TEST(Unique, FindsEachOnce) {
  expect_samples("unique", [](const OracleCase& c) {
    const Host& x = c.in[0];
    const Shape flat = {x.shape.numel()};
    Host values(flat), first(flat), inverse(x.shape), counts(flat), size(Shape{});
    std::vector<double> different = x.v;
    std::sort(different.begin(), different.end());
    different.erase(std::unique(different.begin(), different.end()), different.end());
    size.v[0] = static_cast<double>(different.size());
    for (size_t k = 0; k < different.size(); ++k) {
      values.v[k] = different[k];
      first.v[k] = static_cast<double>(std::find(x.v.begin(), x.v.end(), different[k]) - x.v.begin());
      for (size_t i = 0; i < x.v.size(); ++i)
        if (x.v[i] == different[k]) inverse.v[i] = static_cast<double>(k), ++counts.v[k];
    }
    return std::vector<Host>{values, first, inverse, counts, size};
  });
}

TEST(Unique, HasAsManyAsThereAre) {
  const NDArray x = array({{3.f, NAN, -1.f}, {NAN, 3.f, 3.f}});
  const UniqueResult u = unique(x);
  ASSERT_EQ(Shape({3}), u.values.shape());
  EXPECT_EQ(-1.f, u.values[0].item<float>());
  EXPECT_TRUE(std::isnan(u.values[2].item<float>()));
  EXPECT_EQ((std::vector<int64_t>{2, 0, 1}), u.first.to_vector<int64_t>());
  EXPECT_EQ((std::vector<int64_t>{1, 2, 0, 2, 1, 1}), u.inverse.to_vector<int64_t>());
  EXPECT_EQ((std::vector<int64_t>{1, 3, 2}), u.counts.to_vector<int64_t>());
  EXPECT_EQ(0, unique(ones({0})).values.numel());
  EXPECT_EQ(1, unique(ones({})).values.numel());
  const NDArray large = (arange(100000) * 7919) % 1000;
  const UniqueResult many = unique(large);
  EXPECT_EQ(arange(1000).to_vector<int64_t>(), many.values.to_vector<int64_t>());
  EXPECT_EQ(std::vector<int64_t>(1000, 100), many.counts.to_vector<int64_t>());
  EXPECT_EQ(large.to_vector<int64_t>(), NDArray(many.values[many.inverse]).to_vector<int64_t>());
}

TEST(Searchsorted, FindsThePlace) {
  expect_samples("searchsorted", [](const OracleCase& c) {
    Host y(c.in[1].shape);
    const std::vector<double>& s = c.in[0].v;
    for (size_t i = 0; i < y.v.size(); ++i) {
      const auto place = c.b("behind") ? std::upper_bound(s.begin(), s.end(), c.in[1].v[i])
                                       : std::lower_bound(s.begin(), s.end(), c.in[1].v[i]);
      y.v[i] = static_cast<double>(place - s.begin());
    }
    // In a type that cannot hold the sample in order, the result is unspecified, so take the operator's own.
    if (!std::is_sorted(s.begin(), s.end())) y = Host(searchsorted(c.inputs[0], c.inputs[1], c.b("behind")));
    return std::vector<Host>{y};
  });
  const NDArray sorted = array<int64_t>({1, 3, 3, 5});
  EXPECT_EQ((std::vector<int64_t>{0, 1, 3, 4}),
            searchsorted(sorted, array({1.f, 1.5f, 3.5f, 9.f})).to_vector<int64_t>());
  EXPECT_EQ((std::vector<int64_t>{3}), searchsorted(sorted, array<int32_t>({3}), true).to_vector<int64_t>());
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { searchsorted(ones({2, 2}), ones({1})); }), "rank 1"));
}

class SortingEngine : public test::EngineTest {};

TEST_P(SortingEngine, GivesTheSame) {
  EngineScope scope(e_);
  for (Context context : {cpu(), virt(0)}) {
    const NDArray x = ((arange(60000) * 7919) % 60013).reshape({30, 2000}).to(context);
    Host h(x);
    const NDArray y = sort(x, 1), i = argsort(x, 1, true);
    const TopK top = topk(x, 5, 1);
    const std::vector<Host> expected = sorted(Host(x[{Slice{0, 1}}]), 1, true, 5);
    EXPECT_EQ(expected[0].v, top.values[0].to_vector<double>());
    EXPECT_EQ(expected[1].v, i[0].slice(0, {0, 5}).to_vector<double>());
    for (auto row = h.v.begin(); row != h.v.end(); row += 2000) std::sort(row, row + 2000);
    EXPECT_EQ(h.v, y.to_vector<double>());
    EXPECT_EQ(60000, unique(x).values.numel());
  }
}

INSTANTIATE_TEST_SUITE_P(All, SortingEngine, ::testing::ValuesIn(test::all_cases()), test::CaseName());

}  // namespace
}  // namespace mx
