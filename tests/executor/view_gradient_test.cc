// Gradients through views: however a view was made, its gradient reaches the elements that it shows.
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <vector>

#include "executor/autograd/autograd.h"
#include "operators/operators.h"
#include "tests/support/errors.h"
#include "tests/support/numeric_gradient.h"

namespace mx {
namespace {

using Map = std::function<NDArray(const NDArray&)>;

// Weights the elements, so that each element must get its own gradient.
NDArray weighed(const NDArray& y) {
  return sum(y * y.to_contiguous() *
             arange(1, static_cast<double>(y.numel()) + 1, 1, f64).reshape(y.shape()));
}

void check_view(const Map& view, const Shape& shape = {2, 3, 4}) {
  test::expect_gradients([&](const std::vector<NDArray>& a) { return weighed(view(a[0])); },
                         {test::some(shape)});
}

TEST(ViewGradient, EveryKindOfView) {
  check_view([](const NDArray& x) { return x[1]; });
  check_view([](const NDArray& x) { return x[{-1, colon, 2}]; });
  check_view([](const NDArray& x) { return x[{colon, Slice{2, {}, -2}, Slice{0, 4, 3}}]; });
  check_view([](const NDArray& x) { return x.select(2, 1); });
  check_view([](const NDArray& x) { return x.slice(1, Slice{1, 3}); });
  check_view([](const NDArray& x) { return x.transpose(); });
  check_view([](const NDArray& x) { return x.transpose({1, 2, 0}); });
  check_view([](const NDArray& x) { return x.swap_axes(0, 2).move_axis(1, 0); });
  check_view([](const NDArray& x) { return x.expand_dims(1).expand_dims(-1); });
  check_view([](const NDArray& x) { return x.slice(0, Slice{0, 1}).squeeze(0); });
  check_view([](const NDArray& x) { return x.reshape({6, -1}); });
  check_view([](const NDArray& x) { return x.flatten(); });
  check_view([](const NDArray& x) { return x.transpose().reshape({4, 6}); });
  check_view([](const NDArray& x) { return x.broadcast_to({2, 2, 3, 4}); });
  check_view([](const NDArray& x) { return x.expand_dims(1).broadcast_to({2, 5, 3, 4}); });
  check_view([](const NDArray& x) { return x.diagonal(1, 1, 2); });
  check_view([](const NDArray& x) { return x.flatten().as_strided({3, 4}, {2, 3}, 1); });
  check_view([](const NDArray& x) { return x.slice(1, Slice{0, 0}); });
}

TEST(ViewGradient, OverlappingWindowsAddUp) {
  check_view([](const NDArray& x) { return x.as_strided({5, 3}, {1, 1}, 0); }, {8});
}

TEST(ViewGradient, RandomChainsOfViews) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const unsigned seed = random();
    check_view(
        [seed](NDArray x) {
          std::mt19937 choice(seed);
          for (int i = 0; i < 4 && x.rank() > 0; ++i) {
            const auto axis = static_cast<int64_t>(choice() % static_cast<unsigned>(x.rank()));
            switch (choice() % 7) {
              case 0:
                x = x.slice(
                    axis,
                    Slice{static_cast<int64_t>(choice() % 2), {}, 1 + static_cast<int64_t>(choice() % 2)});
                break;
              case 1:
                x = x.slice(axis, Slice{{}, {}, -1});
                break;
              case 2:
                x = x.swap_axes(axis, 0);
                break;
              case 3:
                x = x.expand_dims(axis);
                break;
              case 4:
                x = x.reshape({-1});
                break;
              case 5:
                x = x.rank() < 5 ? x.expand_dims(0).broadcast_to([&] {
                  Shape shape = x.shape();
                  shape.insert(0, 2);
                  return shape;
                }())
                                 : x;
                break;
              default:
                x = x.shape()[static_cast<int>(axis)] > 0 ? x.select(axis, -1) : x;
            }
          }
          return x;
        },
        {3, 2, 2});
    if (HasFailure()) FAIL() << "seed " << seed;
  }
}

TEST(ViewGradient, SecondOrder) {
  for (const Map& view :
       std::vector<Map>{[](const NDArray& x) { return x[1]; }, [](const NDArray& x) { return x.transpose(); },
                        [](const NDArray& x) {
                          return x.expand_dims(0).broadcast_to({2, 3, 3});
                        },
                        [](const NDArray& x) {
                          return x[{Slice{{}, {}, 2}, 1}];
                        }}) {
    const auto once = [&](const std::vector<NDArray>& a) {
      NDArray x = a[0];
      if (!x.requires_grad()) x = x.clone().requires_grad_();
      const NDArray y = view(x);
      return sum(gradients({sum(y * y * y)}, {x}, {.create_graph = true})[0] * a[0]);
    };
    test::expect_gradients(once, {test::some({3, 3})});
  }
}

// The offset of as_strided() counts from the start of the memory, so it may show elements that the view that
// it is called on does not show. The same elements, taken by their places in the memory, say what is right.
TEST(ViewGradient, AsStridedReachesElementsOutsideOfAView) {
  const NDArray start = test::some({4, 6});
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(round);
    // Two dimensions that stay within the 24 elements.
    const int64_t offset = random() % 24, size = 1 + random() % 3;
    const int64_t step = (23 - offset) / 5 == 0 ? 0 : 1 + random() % ((23 - offset) / 5);
    const Shape shape{size, 3};
    const Strides strides{step, step == 0 ? 0 : 1 + static_cast<int64_t>(random() % 2) * (step - 1)};
    const unsigned kind = random();
    NDArray gradient[2], second[2];
    for (const bool by_place : {false, true}) {
      NDArray x = start.clone();
      x.requires_grad_();
      NDArray h = kind % 2 == 0 ? x : x * x;
      NDArray v = h.flatten()[Slice{kind % 7, 24 - kind % 5, 1 + kind % 3}];
      if (kind % 3 == 0) v = h[{Slice{1, 4}, Slice{1, 5}}].T();
      if (kind % 3 == 1) v = v[Slice{1, {}}];
      const NDArray places = arange(24, i64).as_strided(shape, strides, offset);
      const NDArray y = by_place ? take(h.flatten(), places) : v.as_strided(shape, strides, offset);
      gradient[by_place] = gradients({weighed(y)}, {x}, {.create_graph = true})[0];
      second[by_place] = gradients({weighed(gradient[by_place])}, {x})[0];
    }
    test::expect_close(gradient[1].to_vector<double>(), gradient[0].to_vector<double>(), 1e-12, "gradient");
    test::expect_close(second[1].to_vector<double>(), second[0].to_vector<double>(), 1e-12, "second");
  }
}

TEST(ViewGradient, HooksOfAViewGetWhatFlowsThroughAsStridedWithinIt) {
  NDArray x = test::some({4, 6}).requires_grad_();
  const NDArray h = x * 1;
  const auto seen_at = [&](const NDArray& v, const NDArray& shown) {
    NDArray seen;
    v.add_grad_hook([&seen](const NDArray& g) {
      seen = g.clone();
      return g;
    });
    sum(shown).backward({}, {.retain_graph = true});
    return seen.defined() ? seen.to_vector<double>() : std::vector<double>{};
  };
  const NDArray rows = h[Slice{1, 3}];
  EXPECT_EQ((std::vector<double>{0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1}),
            seen_at(rows, rows.as_strided({6}, {2}, 7)));
  const NDArray column = h[{colon, 2}];
  EXPECT_EQ((std::vector<double>{1, 2, 2, 1}), seen_at(column, sliding_window(column, 2)));
  const NDArray turned = h[{colon, Slice{4, 1, -1}}];
  EXPECT_EQ((std::vector<double>{0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0}),
            seen_at(turned, turned.as_strided({3}, {6}, 9)));
  EXPECT_EQ(0U, seen_at(h[0], h[0].as_strided({2}, {6}, 0)).size());
}

// A leaf may be a part of a longer memory. What as_strided() shows beyond it is constant.
TEST(ViewGradient, AsStridedBeyondALeafShowsConstants) {
  const NDArray memory = arange(8, f64);
  NDArray leaf = memory[Slice{3, 7, 2}].detach();
  leaf.requires_grad_();
  const NDArray shown = leaf.as_strided({8}, {1}, 0);
  const NDArray gradient = gradients({sum(shown * shown * shown)}, {leaf}, {.create_graph = true})[0];
  EXPECT_EQ((std::vector<double>{27, 75}), gradient.to_vector<double>());
  EXPECT_EQ((std::vector<double>{18, 30}), gradients({sum(gradient)}, {leaf})[0].to_vector<double>());
}

TEST(ViewGradient, AdvancedIndexing) {
  const NDArray rows = array<int64_t>({2, 0, 2});
  check_view([&](const NDArray& x) -> NDArray { return x[rows]; }, {3, 4});
  check_view([&](const NDArray& x) -> NDArray { return x[{colon, rows}]; }, {2, 3});
  check_view([&](const NDArray& x) -> NDArray { return x[x.detach() > 1.0]; }, {3, 4});
}

TEST(ViewGradient, AViewMayBeALeaf) {
  const NDArray base = test::some({3, 4});
  NDArray leaf = base.transpose();
  leaf.requires_grad_();
  sum(leaf[1] * 2).backward();
  EXPECT_FALSE(base.requires_grad());
  const std::vector<double> g = leaf.grad().to_vector<double>();
  for (size_t i = 0; i < g.size(); ++i) EXPECT_EQ(i / 3 == 1 ? 2 : 0, g[i]);
  NDArray repeated = test::some({1, 4}).broadcast_to({3, 4});
  repeated.requires_grad_();
  test::error_of<InvalidArgument>([&] { repeated[0]; });
}

}  // namespace
}  // namespace mx
