// Gradients of random programs against finite differences: sums of branches, arrays that are used several
// times, views of views, parts that are written. Gradients of intermediate arrays, and hooks on them, against
// the same program with an addend, or with detach(), in their place.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "executor/autograd/autograd.h"
#include "executor/autograd/checkpoint.h"
#include "executor/autograd/functional.h"
#include "operators/operators.h"
#include "tests/support/numeric_gradient.h"

namespace mx {
namespace {

using Arrays = std::vector<NDArray>;

constexpr int64_t kRows = 3, kColumns = 4;
constexpr size_t kLeaves = 3;

NDArray weights(double start) {
  return cos(arange(kRows * kColumns, f64) * 0.7 + start).reshape({kRows, kColumns});
}

/// A program that the seed determines. All its arrays are (kRows, kColumns).
class Program {
 public:
  Program(unsigned seed, bool writes) : seed_(seed), writes_(writes) {}

  /// Called with each array that the program makes, by number; returns what the program goes on with.
  using Visit = std::function<NDArray(size_t number, NDArray made)>;

  /// Returns the loss. `all` gets the leaves and what the program has made.
  NDArray run(const Arrays& leaves, const Visit& visit = nullptr, Arrays* all = nullptr) const {
    std::mt19937 random(seed_);
    Arrays values = leaves;
    const size_t steps = 4 + random() % 10;
    for (size_t i = 0; i < steps; ++i) {
      // A recent array or any one.
      const auto pick = [&] {
        const size_t recent = std::min<size_t>(values.size(), 3);
        return values[random() % 2 == 0 ? values.size() - 1 - random() % recent : random() % values.size()];
      };
      const NDArray a = pick(), b = pick();
      NDArray made = apply(random(), a, b);
      values.push_back(visit ? visit(values.size(), made) : made);
    }
    NDArray loss = sum(values.back() * weights(0));
    for (double start = 1; start < 3; ++start)
      loss = loss + sum(values[random() % values.size()] * weights(start));
    if (all != nullptr) *all = values;
    return loss;
  }

 private:
  NDArray apply(unsigned number, const NDArray& a, const NDArray& b) const {
    switch (number % (writes_ ? 28 : 24)) {
      case 0:
      case 1:
      case 2:
        return a + b;
      case 3:
        return a - b;
      case 4:
        return a * b * 0.5;
      case 5:
        return a / (b * b + 1);
      case 6:
        return tanh(matmul(matmul(a, b.T()), a));
      case 7:
        return sin(a) + a;
      case 8:
        return a * 0.7 + 0.1;
      case 9:
        return tanh(a);
      case 10:
        return a + a;
      case 11:
        return -a;
      case 12:
        return a.T().T();
      case 13:
        return flip(a, 1);
      case 14:
        return a.reshape({2, 6}).reshape({kRows, kColumns});
      case 15:
        return (a.T() * 1.5).T();
      case 16:
        return a.T().reshape({kRows, kColumns});
      case 17:
        return concat(a[{colon, Slice{2, {}}}], b[{colon, Slice{0, 2}}], 1);
      case 18:
        return a + b[1];
      case 19:
        return a[Slice{{}, {}, -1}];
      case 20:
        return softmax(a, 1) + b;
      case 21:
        return a * tanh(sum(a, 1, true));
      case 22:
        return where(weights(0.3) > 0, a, b);
      case 23:
        return flip(a.T()[Slice{1, 4}], 0).T().reshape({3, 3}).T().sum(1, true) * 0.3 + b;
      case 24: {
        NDArray h = a.clone();
        h += b;
        return h;
      }
      case 25: {
        NDArray h = a * 1;
        h[1] = b[0] * 2;
        return h;
      }
      case 26: {
        NDArray h = a.clone();
        NDArray part = h[{colon, Slice{1, 3}}];
        part *= b[{colon, Slice{0, 2}}];
        return h;
      }
      default: {
        NDArray h = a * 1;
        h.T()[2].copy_from(b.T()[0]);
        return h;
      }
    }
  }

  const unsigned seed_;
  const bool writes_;
};

Arrays some_leaves(unsigned seed) {
  Arrays leaves;
  for (size_t i = 0; i < kLeaves; ++i)
    leaves.push_back(Generator(seed * 10 + i).uniform(-1, 1, {kRows, kColumns}, f64).requires_grad_());
  return leaves;
}

std::vector<NDArray> gradients_or_zeros(const NDArray& output, const Arrays& inputs,
                                        bool create_graph = false) {
  Arrays result = gradients({output}, inputs, {.create_graph = create_graph, .allow_unused = true});
  for (size_t i = 0; i < result.size(); ++i)
    if (!result[i].defined()) result[i] = zeros_like(inputs[i]);
  return result;
}

/// The derivative of f along the directions weights(5), weights(6), .. of the leaves, by differences.
double numeric_slope(const std::function<NDArray(const Arrays&)>& f, const Arrays& leaves) {
  constexpr double kStep = 1e-5;
  double value[2];
  for (int side = 0; side < 2; ++side) {
    Arrays moved;
    for (size_t i = 0; i < leaves.size(); ++i)
      moved.push_back(
          (leaves[i].detach() + weights(5. + static_cast<double>(i)) * (side == 0 ? kStep : -kStep))
              .requires_grad_());
    value[side] = f(moved).item<double>();
  }
  return (value[0] - value[1]) / (2 * kStep);
}

double slope(const Arrays& leaf_gradients) {
  double total = 0;
  for (size_t i = 0; i < leaf_gradients.size(); ++i)
    total += sum(leaf_gradients[i] * weights(5. + static_cast<double>(i))).item<double>();
  return total;
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr unsigned kPrograms = 60;
#else
constexpr unsigned kPrograms = 400;
#endif

void expect_near(double expected, double got) { EXPECT_NEAR(expected, got, 1e-6 * (1 + std::abs(expected))); }

class RandomGradients : public ::testing::TestWithParam<bool> {};

TEST_P(RandomGradients, AreFiniteDifferences) {
  for (unsigned seed = 1; seed <= kPrograms; ++seed) {
    SCOPED_TRACE(seed);
    const Program program(seed, GetParam());
    const Arrays leaves = some_leaves(seed);
    program.run(leaves).backward();
    Arrays found;
    for (const NDArray& leaf : leaves)
      found.push_back(leaf.grad().defined() ? leaf.grad() : zeros_like(leaf.detach()));
    expect_near(numeric_slope([&](const Arrays& at) { return program.run(at); }, leaves), slope(found));
  }
}

TEST_P(RandomGradients, SecondDerivativesAreFiniteDifferences) {
  for (unsigned seed = 1; seed <= kPrograms / 2; ++seed) {
    SCOPED_TRACE(seed);
    const Program program(seed, GetParam());
    const Arrays leaves = some_leaves(seed);
    const auto first = [&](const Arrays& at) {
      NDArray total = zeros({}, f64);
      const Arrays g = gradients_or_zeros(program.run(at), at, true);
      for (size_t i = 0; i < g.size(); ++i) total = total + sum(g[i] * weights(8. + static_cast<double>(i)));
      return total;
    };
    const NDArray total = first(leaves);
    const double found = total.requires_grad() ? slope(gradients_or_zeros(total, leaves)) : 0;
    expect_near(numeric_slope(first, leaves), found);
  }
}

INSTANTIATE_TEST_SUITE_P(Programs, RandomGradients, ::testing::Bool(),
                         [](const auto& tested) { return tested.param ? "with_writes" : "without_writes"; });

TEST(RandomTargets, GetTheGradientOfAnAddendInTheirPlace) {
  for (unsigned seed = 1; seed <= kPrograms; ++seed) {
    SCOPED_TRACE(seed);
    const Program program(seed, false);
    const Arrays leaves = some_leaves(seed);
    Arrays all;
    const NDArray loss = program.run(leaves, nullptr, &all);
    for (size_t k = kLeaves; k < all.size(); ++k) {
      SCOPED_TRACE(k);
      if (!all[k].requires_grad()) continue;
      const NDArray addend = zeros({kRows, kColumns}, f64).requires_grad_();
      const NDArray other = program.run(
          leaves, [&](size_t number, const NDArray& made) { return number == k ? made + addend : made; });
      const NDArray expected = gradients_or_zeros(other, {addend})[0];
      const Arrays found = gradients({loss}, {all[k]}, {.retain_graph = true, .allow_unused = true});
      test::expect_close(expected.to_vector<double>(),
                         (found[0].defined() ? found[0] : zeros_like(addend.detach())).to_vector<double>(),
                         1e-12, "the gradient of array " + std::to_string(k));
    }
  }
}

TEST(RandomTargets, AHookThatStopsTheGradientIsADetachInItsPlace) {
  for (unsigned seed = 1; seed <= kPrograms; ++seed) {
    SCOPED_TRACE(seed);
    const Program program(seed, false);
    for (size_t k = kLeaves; k < kLeaves + 6; ++k) {
      SCOPED_TRACE(k);
      const Arrays leaves = some_leaves(seed);
      const auto gradients_with = [&](const std::function<NDArray(const NDArray&)>& at_k) {
        return gradients_or_zeros(
            program.run(leaves,
                        [&](size_t number, const NDArray& made) { return number == k ? at_k(made) : made; }) +
                sum(leaves[0] * 0),
            leaves);
      };
      const Arrays expected = gradients_with([](const NDArray& made) { return made.detach(); });
      const Arrays found = gradients_with([](const NDArray& made) {
        if (made.requires_grad()) made.add_grad_hook([](const NDArray& g) { return g * 0; });
        return made;
      });
      for (size_t i = 0; i < leaves.size(); ++i)
        test::expect_close(expected[i].to_vector<double>(), found[i].to_vector<double>(), 1e-12,
                           "leaf " + std::to_string(i));
    }
  }
}

/// Outputs of a program, and heads for them.
struct OutputsAndHeads {
  Arrays outputs, heads;
};

NDArray head_of_shape(const Shape& shape, size_t number) {
  return cos(arange(shape.numel(), f64) * 0.7 + static_cast<double>(number)).reshape(shape);
}

/// The outputs are what the program has made, and pairs of that: their gradients are views of the heads.
OutputsAndHeads outputs_and_heads(const Arrays& all, bool recorded) {
  OutputsAndHeads made;
  for (size_t k = kLeaves; k < all.size(); ++k) {
    const NDArray output = k % 2 == 0 ? all[k] : concat(all[k - 1], all[k]);
    if (!output.requires_grad()) continue;
    NDArray head = head_of_shape(output.shape(), k);
    if (recorded) head.requires_grad_();
    made.outputs.push_back(output);
    made.heads.push_back(k % 3 == 0 ? head.T().T() : head);
  }
  return made;
}

// A gradient may be a view of a head or of what a hook has returned. The passes must not change these arrays.
TEST(RandomHeads, MayRequireGradientsAndStayAsTheyAre) {
  for (unsigned seed = 1; seed <= kPrograms; ++seed) {
    SCOPED_TRACE(seed);
    const Program program(seed, false);
    Arrays found[2], owned[2];
    for (const bool recorded : {false, true}) {
      const Arrays leaves = some_leaves(seed);
      Arrays all;
      program.run(leaves, nullptr, &all);
      const auto [outputs, heads] = outputs_and_heads(all, recorded);
      if (outputs.empty()) break;
      const Shape last = outputs.back().shape();
      NDArray parameter = head_of_shape(last, 20);
      if (recorded) parameter.requires_grad_();
      for (int pass = 0; pass < 3; ++pass) {
        owned[recorded] =
            gradients(outputs, leaves, {.heads = heads, .retain_graph = true, .allow_unused = true});
        backward(outputs, heads, {.retain_graph = true});
        if (pass == 0) outputs.back().add_grad_hook([parameter](const NDArray&) { return parameter; });
      }
      const Arrays given = outputs_and_heads(all, false).heads;
      for (size_t i = 0; i < heads.size(); ++i) {
        EXPECT_EQ(given[i].to_vector<double>(), heads[i].to_vector<double>());
        for (const NDArray& gradient : owned[recorded])
          EXPECT_FALSE(gradient.defined() && gradient.shares_memory(heads[i]));
      }
      EXPECT_EQ(head_of_shape(last, 20).to_vector<double>(), parameter.to_vector<double>());
      for (const NDArray& leaf : leaves) found[recorded].push_back(leaf.grad());
    }
    for (size_t i = 0; i < found[0].size(); ++i) {
      if (!found[0][i].defined()) continue;
      EXPECT_EQ(found[0][i].to_vector<double>(), found[1][i].to_vector<double>());
      EXPECT_EQ(owned[0][i].to_vector<double>(), owned[1][i].to_vector<double>());
    }
  }
}

// Where elements share memory, views of the view belong to its base.
TEST(RandomTargets, ViewsOfBroadcastArraysHaveGradients) {
  test::expect_gradients(
      [](const Arrays& x) {
        const NDArray wide = x[0].reshape({3, 1}).broadcast_to({3, 4});
        return sum(sin(wide.T()) * wide.T()[1]) + sum(wide[{colon, Slice{1, 3}}].T() * 2);
      },
      {Generator(3).uniform(-1, 1, {3}, f64)});
}

// The derivatives of gradients have broadcast heads and saved values, of which views are taken.
TEST(RandomTargets, SecondDerivativesMayMeetArraysWhoseElementsShareMemory) {
  using Map = std::function<NDArray(const NDArray&)>;
  const std::vector<Map> functions{
      // The head of concat, and of others, is a broadcast number.
      [](const NDArray& x) {
        return concat(x, x).reshape({2, 16});
      },
      [](const NDArray& x) {
        return x.T().reshape({2, 8});
      },
      [](const NDArray& x) {
        return pad(x, {{1, 1}, {1, 1}})[Slice{0, 6}];
      },
      [](const NDArray& x) { return sliding_window(x, 2, 1).flatten(); },
      // Operators that save the values.
      [](const NDArray& x) { return matmul(x, matmul(x, x)).T(); },
      [](const NDArray& x) { return cumprod(x, 0).T(); },
      [](const NDArray& x) { return cdist(x, eye(4).to(f64)); },
      [](const NDArray& x) {
        const NDArray q = x.reshape({1, 1, 4, 4});
        return scaled_dot_product_attention(q, q, q);
      },
      [](const NDArray& x) { return checkpoint([](const NDArray& a) { return square(a.T()) * a; }, x); },
  };
  for (size_t i = 0; i < functions.size(); ++i) {
    SCOPED_TRACE(i);
    const auto second = [&](const NDArray& variable, const NDArray& x) {
      const NDArray loss = square(sum(functions[i](x)));
      const NDArray gradient = gradients({loss}, {variable}, {.create_graph = true})[0];
      return gradients({sum(gradient * gradient)}, {variable})[0].to_vector<double>();
    };
    NDArray row = Generator(5).uniform(0.1, 1, {4}, f64).requires_grad_();
    test::expect_close(second(row, stack(Arrays{row, row, row, row})), second(row, row.broadcast_to({4, 4})),
                       1e-12, "second derivative");
  }
}

TEST(RandomTargets, ArgumentsOfGradAndHvpMayBeBroadcast) {
  const NDArray one = ones({1}, f64).broadcast_to({2, 3});
  EXPECT_EQ(
      std::vector<double>(6, 2),
      hvp([](const NDArray& a) { return sum(square(a.T())); }, one, ones({2, 3}, f64)).to_vector<double>());
  NDArray row = ones({3}, f64).requires_grad_();
  const NDArray gradient =
      grad([](const NDArray& a) { return sum(a.T() * a.T() * a.T()); })(row.broadcast_to({2, 3}));
  EXPECT_EQ(std::vector<double>(3, 12), gradients({sum(gradient)}, {row})[0].to_vector<double>());
}

// A row of views beyond the longest one that is followed goes to its root.
TEST(RandomTargets, ALongRowOfViewsHasGradientsAndNeedsNoDeepStack) {
  const NDArray x = Generator(4).uniform(-1, 1, {kRows, kColumns}, f64).requires_grad_();
  NDArray h = x * 2;
  for (int i = 0; i < 100'000; ++i) h = h.T();
  sum(h * weights(1)).backward();
  EXPECT_EQ((weights(1) * 2).to_vector<double>(), x.grad().to_vector<double>());
}

}  // namespace
}  // namespace mx
