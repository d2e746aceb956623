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
