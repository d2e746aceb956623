// Operators that move elements, compared with plain loops.
#include <gtest/gtest.h>

#include <numeric>

#include "operators/operators.h"
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

TEST(Concat, PutsOneBehindTheOther) {
  expect_samples("concat", [](const OracleCase& c) {
    const int axis = static_cast<int>(axis_of(c.i("axis"), c.in[0].shape.rank()));
    Shape shape = c.in[0].shape;
    shape[axis] = 0;
    for (const Host& x : c.in) shape[axis] += x.shape[axis];
    Host y(shape);
    each_position(shape, [&](const Shape& at) {
      Shape from = at;
      size_t k = 0;
      while (from[axis] >= c.in[k].shape[axis]) from[axis] -= c.in[k++].shape[axis];
      y[at] = c.in[k][from];
    });
    return std::vector<Host>{y};
  });
}

TEST(Concat, PromotesTypesAndTakesManyAndEmptyOnes) {
  std::vector<NDArray> parts;
  std::vector<double> expected;
  for (int64_t k = 0; k < 100; ++k) {
    parts.push_back(arange(k % 4).to(k % 2 == 0 ? i32 : u8));
    for (int64_t i = 0; i < k % 4; ++i) expected.push_back(static_cast<double>(i));
  }
  const NDArray all = concat(parts);
  EXPECT_EQ(i32, all.dtype());
  EXPECT_EQ(expected, all.to_vector<double>());
  EXPECT_EQ(f16, concat({ones({2}, i64), ones({1}, f16)}).dtype());
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { concat({ones({2, 3}), ones({3, 2})}, 1); }), "(3, 2)"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { concat(std::vector<NDArray>{}); }), "1 or more"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { concat({ones({}), ones({})}); }), "axis"));
}

TEST(Stack, MakesANewAxis) {
  const NDArray a = array({1.f, 2.f}), b = array({3.f, 4.f});
  EXPECT_EQ((std::vector<float>{1, 2, 3, 4}), stack({a, b}).to_vector<float>());
  EXPECT_EQ((std::vector<float>{1, 3, 2, 4}), stack({a, b}, -1).to_vector<float>());
  EXPECT_EQ(Shape({2}), stack({ones({}), ones({})}).shape());
  EXPECT_EQ((std::vector<float>{1, 2, 3, 4}), hstack({a, b}).to_vector<float>());
  EXPECT_EQ(Shape({2, 2}), vstack({a, b}).shape());
  EXPECT_EQ(Shape({2, 5}), hstack({ones({2, 2}), ones({2, 3})}).shape());
  EXPECT_EQ(Shape({2, 1}), vstack({ones({}), ones({})}).shape());
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { stack({a, ones({3})}); }), "(3,)"));
}

TEST(Split, CutsIntoPieces) {
  expect_samples("split", [](const OracleCase& c) {
    const int axis = static_cast<int>(axis_of(c.i("axis"), c.in[0].shape.rank()));
    std::vector<Host> pieces;
    int64_t first = 0;
    for (int64_t size : c.list("sizes")) {
      Shape shape = c.in[0].shape;
      shape[axis] = size;
      pieces.emplace_back(shape);
      each_position(shape, [&](const Shape& at) {
        Shape from = at;
        from[axis] += first;
        pieces.back()[at] = c.in[0][from];
      });
      first += size;
    }
    return pieces;
  });
}

TEST(Split, AndChunkAgreeWithConcat) {
  const NDArray x = arange(6 * 70).reshape({6, 70});
  for (int64_t parts : {1, 2, 7, 70})
    EXPECT_EQ(x.to_vector<int64_t>(), concat(split(x, parts, 1), 1).to_vector<int64_t>()) << parts;
  for (int64_t parts : {1, 2, 4, 9, 100}) {
    const std::vector<NDArray> pieces = chunk(x, parts, 1);
    EXPECT_LE(static_cast<int64_t>(pieces.size()), parts);
    EXPECT_EQ(x.to_vector<int64_t>(), concat(pieces, 1).to_vector<int64_t>()) << parts;
  }
  const std::vector<NDArray> pieces = chunk(arange(7), 3);
  ASSERT_EQ(3u, pieces.size());
  EXPECT_EQ(3, pieces[0].numel());
  EXPECT_EQ(1, pieces[2].numel());
  EXPECT_EQ(3u, chunk(ones({0}), 3).size());
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { split(x, 4, 0); }), "divides"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { split(x, {4, 3}, 0); }), "add up to 6"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { split(x, {7, -1}, 0); }), "[7, -1]"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { chunk(x, 0); }), "above 0"));
}

double value_of(const AttrValue& value) {
  const double* real = std::get_if<double>(&value);
  return real != nullptr ? *real : static_cast<double>(std::get<int64_t>(value));
}

TEST(Pad, PutsOutsideWhatItsModeSays) {
  expect_samples("pad", [](const OracleCase& c) {
    const Host& x = c.in[0];
    const std::string& mode = c.s("mode");
    Shape shape = x.shape;
    for (int d = 0; d < shape.rank(); ++d)
      for (size_t side : {size_t{0}, size_t{1}})
        shape[d] += c.list("widths")[static_cast<size_t>(2 * d) + side];
    Host y(shape);
    const double value = Host(full({}, value_of(c.attrs.at("value")), f64).to(c.dtype)).v[0];
    each_position(shape, [&](const Shape& at) {
      Shape from = at;
      bool outside = false;
      for (int d = 0; d < at.rank(); ++d) {
        int64_t i = at[d] - c.list("widths")[static_cast<size_t>(2 * d)];
        const int64_t n = x.shape[d];
        outside = outside || i < 0 || i >= n;
        // Step by step: an index beyond an edge is folded back until it is inside.
        while (mode == "wrap" && i < 0) i += n;
        while (mode == "wrap" && i >= n) i -= n;
        while (mode == "reflect" && (i < 0 || i >= n)) i = i < 0 ? -i : 2 * (n - 1) - i;
        while (mode == "symmetric" && (i < 0 || i >= n)) i = i < 0 ? -1 - i : 2 * n - 1 - i;
        from[d] = std::min(std::max<int64_t>(i, 0), n - 1);
      }
      y[at] = outside && mode == "constant" ? value : x[from];
    });
    return std::vector<Host>{y};
  });
  EXPECT_EQ(std::vector<float>(5, 2), pad(ones({0}), {2, 3}, PadMode::constant, 2).to_vector<float>());
  EXPECT_EQ(std::vector<float>(4, 1), pad(ones({1}), {2, 1}, PadMode::reflect).to_vector<float>());
  EXPECT_EQ(1.f, pad(ones({}), {}).item<float>());
  EXPECT_EQ(0, pad(ones({0, 2}), {0, 0, 1, 1}, PadMode::wrap).numel());
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { pad(ones({0}), {1, 0}, PadMode::edge); }), "(0,)"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { pad(ones({2}), {1}); }), "2 widths"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { pad(ones({2}), {1, -1}); }), "widths of 0 or more"));
}

TEST(Tile, RepeatsTheWhole) {
  expect_samples("tile", [](const OracleCase& c) {
    Shape shape = c.in[0].shape;
    std::vector<int64_t> times = c.list("repeats");
    while (static_cast<int>(times.size()) < shape.rank()) times.insert(times.begin(), 1);
    const int shift = static_cast<int>(times.size()) - shape.rank();
    Shape wide;
    for (int d = 0; d < static_cast<int>(times.size()); ++d)
      wide.push_back(times[static_cast<size_t>(d)] * (d < shift ? 1 : shape[d - shift]));
    Host y(wide);
    each_position(wide, [&](const Shape& at) {
      Shape from = shape;
      for (int d = shift; d < at.rank(); ++d) from[d - shift] = at[d] % shape[d - shift];
      y[at] = c.in[0][from];
    });
    return std::vector<Host>{y};
  });
  EXPECT_EQ(std::vector<float>(7, 1), tile(ones({}), {7}).to_vector<float>());
  EXPECT_EQ(100000, tile(ones({1}), {100000}).numel());
  EXPECT_EQ((Shape{2, 9}), tile(ones({2, 3}), size_t{3}).shape());
}

TEST(Repeat, RepeatsEntries) {
  expect_samples("repeat", [](const OracleCase& c) {
    const int axis = static_cast<int>(axis_of(c.i("axis"), c.in[0].shape.rank()));
    Shape shape = Shape::filled(c.in[0].shape.rank(), 0);
    for (int d = 0; d < shape.rank(); ++d) shape[d] = c.in[0].shape[d] * (d == axis ? c.i("count") : 1);
    Host y(shape);
    each_position(shape, [&](const Shape& at) {
      Shape from = at;
      from[axis] /= c.i("count");
      y[at] = c.in[0][from];
    });
    return std::vector<Host>{y};
  });
  const NDArray x = array({{1.f, 2.f}, {3.f, 4.f}, {5.f, 6.f}});
  const std::vector<float> expected = {1, 2, 5, 6, 5, 6};
  EXPECT_EQ(expected, repeat(x, {1, 0, 2}).to_vector<float>());
  EXPECT_EQ(expected, repeat(x, array<int32_t>({1, 0, 2})).to_vector<float>());
  EXPECT_EQ((std::vector<float>{1, 1, 3, 3, 5, 5}), repeat(x, {2, 0}, -1).to_vector<float>());
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { repeat(x, {1, 2}); }), "3 counts"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { repeat(x, {1, -2, 1}); }), "-2"));
}

TEST(Roll, ShiftsInACircle) {
  expect_samples("roll", [](const OracleCase& c) {
    Host y(c.in[0].shape);
    each_position(y.shape, [&](const Shape& at) {
      Shape to = at;
      for (size_t k = 0; k < c.list("axes").size(); ++k) {
        const int axis = static_cast<int>(axis_of(c.list("axes")[k], at.rank()));
        const int64_t n = at.rank() > 0 ? y.shape[axis] : 1;
        to[axis] = ((to[axis] + c.list("shifts")[k]) % n + n) % n;
      }
      y[to] = c.in[0][at];
    });
    return std::vector<Host>{y};
  });
  EXPECT_EQ((std::vector<int64_t>{4, 5, 0, 1, 2, 3}),
            roll(arange(6).reshape({2, 3}), {2}).to_vector<int64_t>());
  EXPECT_EQ((std::vector<int64_t>{2, 0, 1}), roll(arange(3), {INT64_MAX}, {0}).to_vector<int64_t>());
  EXPECT_EQ((std::vector<int64_t>{2, 0, 1}), roll(arange(3), 1).to_vector<int64_t>());
  EXPECT_EQ((std::vector<int64_t>{1, 0, 3, 2}), roll(arange(4).reshape({2, 2}), -1, 1).to_vector<int64_t>());
  EXPECT_EQ(0, roll(ones({0, 3}), {1, 1}, {0, 1}).numel());
}

TEST(Triangles, KeepOneSideOfADiagonal) {
  for (const bool lower : {true, false}) {
    expect_samples(lower ? "tril" : "triu", [&](const OracleCase& c) {
      Host y = c.in[0];
      each_position(y.shape, [&](const Shape& at) {
        const int64_t above = at[at.rank() - 1] - at[at.rank() - 2];
        if (lower ? above > c.i("k") : above < c.i("k")) y[at] = 0;
      });
      return std::vector<Host>{y};
    });
  }
  const NDArray x = ones({50, 700});
  for (int64_t k :
       {INT64_MIN, int64_t{-50}, int64_t{-49}, int64_t{0}, int64_t{699}, int64_t{700}, INT64_MAX}) {
    // tril(k) and triu(k + 1) are a partition.
    if (k == INT64_MAX) continue;
    const std::vector<float> sum = (tril(x, k) + triu(x, k + 1)).to_vector<float>();
    EXPECT_EQ(std::vector<float>(35000, 1), sum) << k;
  }
  EXPECT_EQ(0, tril(ones({0, 3})).numel());
  EXPECT_EQ(0, triu(ones({3, 0})).numel());
}

TEST(Views, ShareMemory) {
  NDArray x = arange(6).reshape({2, 3});
  EXPECT_EQ((std::vector<int64_t>{5, 4, 3, 2, 1, 0}), flip(x).to_vector<int64_t>());
  EXPECT_EQ((std::vector<int64_t>{2, 1, 0, 5, 4, 3}), flip(x, {-1}).to_vector<int64_t>());
  EXPECT_EQ(flip(x, {0}).to_vector<int64_t>(), flip(x, 0).to_vector<int64_t>());
  EXPECT_EQ(7, flip(full({}, 7)).item<float>());
  EXPECT_TRUE(flip(x).shares_memory(x));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { flip(x, {2}); }), "axis"));
  EXPECT_TRUE(transpose(x).shares_memory(x));
  EXPECT_EQ(Shape({1, 6}), expand_dims(flatten(x), 0).shape());
  EXPECT_EQ(Shape({6}), squeeze(reshape(x, {1, 6})).shape());
  EXPECT_EQ(Shape({6}), squeeze(reshape(x, {1, 6}), 0).shape());
  EXPECT_EQ(Shape({3, 2}), swap_axes(x, 0, 1).shape());
  EXPECT_EQ(Shape({3, 2}), move_axis(x, 0, 1).shape());
  EXPECT_EQ(Shape({4, 2, 3}), broadcast_to(x, {4, 2, 3}).shape());
  const std::vector<NDArray> both = broadcast_arrays(std::vector<NDArray>{x, ones({4, 1, 1})});
  EXPECT_EQ(Shape({4, 2, 3}), both[0].shape());
  EXPECT_EQ(Shape({4, 2, 3}), both[1].shape());
  const std::vector<NDArray> vectors = {arange(2), arange(3), arange(4)};
  const std::vector<NDArray> xy = meshgrid(vectors), ij = meshgrid(vectors, "ij");
  ASSERT_EQ(3u, xy.size());
  each_position({2, 3, 4}, [&](const Shape& at) {
    for (int d = 0; d < 3; ++d) {
      EXPECT_EQ(at[d], Host(ij[static_cast<size_t>(d)])[at]);
      EXPECT_EQ(at[d], (Host(xy[static_cast<size_t>(d)])[{at[1], at[0], at[2]}]));
    }
  });
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { meshgrid(vectors, "yx"); }), "yx"));
}

class ShapeEngine : public test::EngineTest {};

TEST_P(ShapeEngine, GivesTheSame) {
  EngineScope scope(e_);
  for (Context context : {cpu(), virt(0)}) {
    const NDArray x = arange(300 * 200).reshape({300, 200}).to(context);
    NDArray y = x;
    for (int k = 0; k < 3; ++k) {
      const std::vector<NDArray> parts = split(y, {50, 150}, 1);
      y = concat({parts[1], parts[0]}, 1);
      y = roll(flip(y, {0}), {1, 2}, {0, 1});
      y = pad(y, {1, 1, 1, 1}, PadMode::wrap)[{Slice{1, 301}, Slice{1, 201}}];
      y = tril(y, 100) + triu(y, 101);
    }
    std::vector<int64_t> m = arange(60000).to_vector<int64_t>(), t(60000);
    for (int k = 0; k < 3; ++k) {
      for (size_t i = 0; i < 300; ++i)
        for (size_t j = 0; j < 200; ++j) t[(300 - i) % 300 * 200 + (j + 150 + 2) % 200] = m[i * 200 + j];
      m = t;
    }
    EXPECT_EQ(m, y.to_vector<int64_t>());
  }
}

INSTANTIATE_TEST_SUITE_P(All, ShapeEngine, ::testing::ValuesIn(test::all_cases()), test::CaseName());

}  // namespace
}  // namespace mx
