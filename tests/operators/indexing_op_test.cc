// Compares operators at indices with plain loops.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "operators/operators.h"
#include "tests/operators/oracle.h"
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

int64_t index_in(double value, int64_t size, const std::string& mode = "raise") {
  const auto i = static_cast<int64_t>(value);
  if (mode == "clip") return std::min(std::max<int64_t>(i, 0), size - 1);
  if (mode == "wrap") return (i % size + size) % size;
  return i < 0 ? i + size : i;
}

double combined(const std::string& how, double a, double b, DType type) {
  if (how == "set") return b;
  if (type == bool_) return how == "add" || how == "max" ? a != 0 || b != 0 : a != 0 && b != 0;
  if (how == "max") return std::max(a, b);
  if (how == "min") return std::min(a, b);
  return test::wrapped(how == "add" ? a + b : a * b, type);
}

TEST(Take, FollowsItsIndices) {
  expect_samples("take", [](const OracleCase& c) {
    const Host &x = c.in[0], &indices = c.in[1];
    const int axis = static_cast<int>(axis_of(c.i("axis"), x.shape.rank()));
    Shape shape = x.shape;
    shape.erase(axis);
    for (int d = 0; d < indices.shape.rank(); ++d) shape.insert(axis + d, indices.shape[d]);
    Host y(shape);
    each_position(shape, [&](const Shape& at) {
      Shape from, j;
      for (int d = 0; d < at.rank(); ++d)
        (d >= axis && d < axis + indices.shape.rank() ? j : from).push_back(at[d]);
      from.insert(axis, index_in(indices[j], x.shape[axis], c.s("mode")));
      y[at] = x[from];
    });
    return std::vector<Host>{y};
  });
}

TEST(Gather, FollowsItsIndices) {
  expect_samples("gather", [](const OracleCase& c) {
    const int axis = static_cast<int>(axis_of(c.i("axis"), c.in[0].shape.rank()));
    Host y(c.in[1].shape);
    each_position(y.shape, [&](const Shape& at) {
      Shape from = at;
      from[axis] = index_in(c.in[1][at], c.in[0].shape[axis]);
      y[at] = c.in[0][from];
    });
    return std::vector<Host>{y};
  });
}

TEST(Scatter, CombinesInTheOrderOfItsIndices) {
  expect_samples(
      "scatter",
      [](const OracleCase& c) {
        Host y = c.in[0];
        const int axis = static_cast<int>(axis_of(c.i("axis"), y.shape.rank()));
        each_position(c.in[1].shape, [&](const Shape& at) {
          Shape to = at;
          to[axis] = index_in(c.in[1][at], y.shape[axis]);
          y[to] = combined(c.s("how"), y[to], c.in[2].wide(at), c.dtype);
        });
        return std::vector<Host>{y};
      },
      1e-6);
}

TEST(IndexUpdate, CombinesInTheOrderOfItsIndices) {
  expect_samples(
      "index_update",
      [](const OracleCase& c) {
        Host y = c.in[0];
        const int axis = static_cast<int>(axis_of(c.i("axis"), y.shape.rank()));
        Shape shape = y.shape;
        shape[axis] = c.in[1].shape[0];
        each_position(shape, [&](const Shape& at) {
          Shape to = at;
          to[axis] = index_in(c.in[1].v[static_cast<size_t>(at[axis])], y.shape[axis]);
          y[to] = combined(c.s("how"), y[to], c.in[2].wide(at), c.dtype);
        });
        return std::vector<Host>{y};
      },
      1e-6);
}

TEST(IndexUpdate, ErrorsOfTheCallNameTheFunctionThatWasCalled) {
  NDArray x = zeros({3, 2}, f64);
  const NDArray bad = zeros({1, 1}, i64), updates = ones({1, 2}, f64), at = array<int64_t>({0});
  const auto name_in = [](const auto& call) {
    const std::string text = error_of<InvalidArgument>(call);
    EXPECT_TRUE(contains(text, "indexing_op_test.cc")) << text;
    return text.substr(0, text.find(' '));
  };
  EXPECT_EQ("[index_update]", name_in([&] { index_update(x, bad, updates, 0, Scatter::add); }));
  EXPECT_EQ("[index_add]", name_in([&] { index_add(x, bad, updates); }));
  EXPECT_EQ("[index_add]", name_in([&] { index_add(x, at, updates, 5); }));
  EXPECT_EQ("[index_add]", name_in([&] { index_add(x, at, ones({2, 5}, f64)); }));
  EXPECT_EQ("[index_copy]", name_in([&] { index_copy(x, bad, updates); }));
  EXPECT_EQ("[index_add]", name_in([&] { index_add_(x, bad, updates); }));
  EXPECT_EQ("[index_copy]", name_in([&] { index_copy_(x, bad, updates); }));
}

TEST(OneHot, IsOneAtTheIndex) {
  expect_samples("one_hot", [](const OracleCase& c) {
    Shape shape = c.in[0].shape;
    shape.push_back(c.i("classes"));
    Host y(shape);
    each_position(shape, [&](const Shape& at) {
      Shape row = at;
      row.resize(at.rank() - 1);
      y[at] = c.in[0][row] == static_cast<double>(at.back());
    });
    return std::vector<Host>{y};
  });
}

TEST(Embedding, IsRowsAndItsGradientTheirSums) {
  expect_samples("embedding", [](const OracleCase& c) {
    Shape shape = c.in[1].shape;
    shape.push_back(c.in[0].shape[1]);
    Host y(shape);
    each_position(shape, [&](const Shape& at) {
      Shape row = at;
      row.resize(at.rank() - 1);
      y[at] = c.in[0][{index_in(c.in[1][row], c.in[0].shape[0]), at.back()}];
    });
    return std::vector<Host>{y};
  });
  expect_samples("embedding_gradient", [](const OracleCase& c) {
    Host y({c.i("rows"), c.in[1].shape.back()});
    each_position(c.in[1].shape, [&](const Shape& at) {
      const auto row = static_cast<int64_t>(c.in[0][{at[0]}]);
      if (row != c.i("skip_row")) y[{row, at[1]}] += c.in[1][at];
    });
    return std::vector<Host>{y};
  });
}

TEST(Embedding, TheRowOfPaddingHasNoGradient) {
  const Operator& op = *find_operator("embedding");
  const Attrs attrs = Attrs::from_map(op.attrs, {{"padding", int64_t{1}}}, op.name());
  const NDArray table = ones({3, 2}, f64), indices = array<int64_t>({1, 2, -2, 2});
  std::vector<NDArray> results(2);
  const std::vector<NDArray> inputs = {table, indices}, outputs = call(op, attrs, inputs),
                             heads = {ones({4, 2}, f64)};
  const std::vector<uint8_t> wanted = {1, 0};
  GradientContext context(op, attrs, inputs, outputs, heads, wanted, results);
  op.gradient(context);
  EXPECT_EQ((std::vector<double>{0, 0, 0, 0, 2, 2}), results[0].to_vector<double>());
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { embedding(table, indices, 3); }), "3 rows, got 3"));
}

/// Returns the position in x of the element at position `at` of x[indices].
Shape advanced_place(const OracleCase& c, size_t first, const Shape& at) {
  const Shape& x = c.in[0].shape;
  const std::vector<int64_t>& axes = c.list("axes");
  Shape both;
  for (size_t i = first; i < c.in.size(); ++i) both = broadcast_shapes(both, c.in[i].shape, "test");
  int64_t position = c.i("position");
  if (position < 0) {
    const bool neighbours = axes.back() - axes.front() + 1 == static_cast<int64_t>(axes.size());
    position = neighbours ? axis_of(axes.front(), x.rank()) : 0;
  }
  Shape j, rest, place;
  for (int d = 0; d < at.rank(); ++d)
    (d >= position && d < position + both.rank() ? j : rest).push_back(at[d]);
  int next = 0;
  for (int d = 0; d < x.rank(); ++d) {
    size_t k = 0;
    while (k < axes.size() && axis_of(axes[k], x.rank()) != d) ++k;
    place.push_back(k < axes.size() ? index_in(c.in[first + k].wide(j), x[d]) : rest[next++]);
  }
  return place;
}

TEST(GatherNd, FollowsItsIndices) {
  expect_samples("gather_nd", [](const OracleCase& c) {
    const std::vector<NDArray> indices(c.inputs.begin() + 1, c.inputs.end());
    Host y(gather_nd(c.inputs[0], indices, c.list("axes"), c.i("position")).shape());
    each_position(y.shape, [&](const Shape& at) { y[at] = c.in[0][advanced_place(c, 1, at)]; });
    return std::vector<Host>{y};
  });
}

TEST(PutNd, CombinesInTheOrderOfItsIndices) {
  expect_samples(
      "put_nd",
      [](const OracleCase& c) {
        const std::vector<NDArray> indices(c.inputs.begin() + 2, c.inputs.end());
        Host y = c.in[0];
        const Shape shape = gather_nd(c.inputs[0], indices, c.list("axes"), c.i("position")).shape();
        each_position(shape, [&](const Shape& at) {
          const Shape to = advanced_place(c, 2, at);
          y[to] = combined(c.s("how"), y[to], c.in[1].wide(at), c.dtype);
        });
        return std::vector<Host>{y};
      },
      1e-6);
}

TEST(Masks, ChooseInOrder) {
  const auto size = [](const Host& mask) {
    Host n(Shape{});
    for (double v : mask.v) n.v[0] += v != 0;
    return n;
  };
  expect_samples("mask_count", [&](const OracleCase& c) { return std::vector<Host>{size(c.in[0])}; });
  const NDArray x = array({{1.5f, 0.f, -0.f}, {NAN, -0.5f, 2.f}});
  EXPECT_EQ((std::vector<int64_t>{0, 0, 1, 0, 1, 1, 1, 2}), argwhere(x).to_vector<int64_t>());
  const std::vector<NDArray> places = nonzero(x.transpose());
  ASSERT_EQ(2u, places.size());
  EXPECT_EQ((std::vector<int64_t>{0, 0, 1, 2}), places[0].to_vector<int64_t>());
  EXPECT_EQ((std::vector<int64_t>{0, 1, 1, 1}), places[1].to_vector<int64_t>());
  EXPECT_EQ(Shape({0, 2}), argwhere(zeros({3, 2})).shape());
  EXPECT_EQ(Shape({1, 0}), argwhere(ones({})).shape());

  const NDArray mask = array<int64_t>({1, 0, 1}).to(bool_);
  for (DType type : kAllDTypes) {
    const NDArray y = array<int64_t>({{1, 0, 1}, {0, 1, 1}}).to(type);
    EXPECT_EQ((std::vector<double>{1, 1, 0, 1}), masked_select(y, mask).to_vector<double>()) << type;
    EXPECT_EQ((std::vector<double>{1, 0, 1, 1}),
              masked_select(y.transpose(), array<int64_t>({{1}, {0}, {1}}).to(bool_)).to_vector<double>());
    const NDArray source = array<int64_t>({{0, 1, 0}, {0, 1, 1}}).to(type);
    EXPECT_EQ((std::vector<double>{0, 0, 1, 0, 1, 0}), masked_scatter(y, mask, source).to_vector<double>());
    NDArray z = y.clone();
    EXPECT_EQ((std::vector<double>{0, 0, 1, 0, 1, 0}), masked_scatter_(z, mask, source).to_vector<double>());
  }
  EXPECT_EQ(0, masked_select(x, zeros({2, 3}, bool_)).numel());
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { masked_select(x, ones({3})); }), "bool"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { masked_scatter(x, mask, ones({3})).wait(); }), "4"));
}

TEST(TakeAlongAxis, Broadcasts) {
  const NDArray x = array({{1.f, 2.f, 3.f}, {4.f, 5.f, 6.f}});
  EXPECT_EQ((std::vector<float>{3, 1, 6, 4}),
            take_along_axis(x, array<int64_t>({{2, 0}}), 1).to_vector<float>());
  EXPECT_EQ((std::vector<float>{1, 2, 3, 4, 5, 6}),
            sort(take_along_axis(x, argsort(x, 1, true), 1), 1).to_vector<float>());
  EXPECT_EQ((std::vector<float>{4, 2, 6}),
            take_along_axis(x, array<int32_t>({{1, 0, -1}}), 0).to_vector<float>());
}

TEST(Indexing, InPlaceFormsDoWhatTheOthersDo) {
  const NDArray x = array({{1.f, 2.f, 3.f}, {4.f, 5.f, 6.f}});
  const NDArray i = array<int64_t>({1, 1}), u = array<int32_t>({{10, 20, 30}, {40, 50, 60}});
  NDArray y = x.clone();
  EXPECT_EQ((std::vector<float>{1, 2, 3, 54, 75, 96}), index_add_(y, i, u).to_vector<float>());
  EXPECT_EQ(index_add(x, i, u).to_vector<float>(), y.to_vector<float>());
  index_copy_(y, i, u);
  EXPECT_EQ(index_copy(x, i, u).to_vector<float>(), y.to_vector<float>());
  y = x.clone();
  scatter_(y, array<int64_t>({{2}, {0}}), full({}, 9, i64), 1, Scatter::mul);
  EXPECT_EQ((std::vector<float>{1, 2, 27, 36, 5, 6}), y.to_vector<float>());
  // The target is a view, and the updates are in the same memory.
  y = x.clone();
  NDArray t = y.transpose();
  index_add_(t, array<int64_t>({0, 2}), t[{Slice{0, 2}}]);
  EXPECT_EQ((std::vector<float>{2, 2, 5, 8, 5, 11}), y.to_vector<float>());
}

TEST(Indexing, AnIndexOutOfRangeComesOutOfWaiting) {
  const NDArray x = ones({3, 4});
  const NDArray bad = array<int64_t>({0, 3, -4});
  const std::vector<NDArray> results = {take(x, bad), index_add(x, bad, ones({3, 4})), embedding(x, bad),
                                        x[bad], gather(x, array<int64_t>({{0, 3}}), 0)};
  for (const NDArray& r : results) {
    const std::string text = error_of<InvalidArgument>([&] { r.wait(); });
    for (const char* part : {"got 3", "axis 0", "size 3", "position"})
      EXPECT_TRUE(contains(text, part)) << text;
  }
  NDArray y = ones({3, 4});
  y[bad] = 7;
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { y.wait(); }), "got 3"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { one_hot(array<int64_t>({1, -1}), 2).wait(); }), "-1"));
}

TEST(Indexing, WhatShapesAndTypesShowIsThrownAtTheCall) {
  const NDArray x = ones({3, 4}), i = array<int64_t>({0, 1});
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { take(x, i, 2); }), "axis"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { take(x, ones({2})); }), "integer"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { gather(x, i, 0); }), "(3, 4)"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { scatter(x, i, i, 0); }), "(3, 4)"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { index_add(x, i, ones({3, 4})); }), "(2, 4)"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { embedding(x[0], i); }), "rank 2"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { x[{i, array<int64_t>({0, 1, 2})}]; }), "(3,)"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { x[{i, i, i}]; }), "at most 2"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { x[ones({3})]; }), "f32"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { x[ones({4}, bool_)]; }), "(4,)"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { x[i] = ones({3, 4}); }), "(2, 4)"));
}

}  // namespace
}  // namespace mx
