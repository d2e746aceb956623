// Layers for graphs against dense formulas.
#include "nn/graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "executor/autograd/autograd.h"
#include "ndarray/grad_mode.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/matmul.h"
#include "operators/reduce.h"
#include "tests/operators/values.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::expect_error;
using test::expect_values;
using test::numbers;
using test::Values;
using test::values;

constexpr int64_t kNodes = 7, kIn = 5;

/// A directed graph: node 6 has no edges, node 2 one to itself, 0 gets two messages from 4.
struct SmallGraph {
  std::vector<int64_t> rows = {0, 0, 1, 2, 3, 3, 5, 1, 0}, columns = {4, 1, 0, 2, 5, 1, 3, 4, 4};
  Values weights = {0.5, 1.5, 2, 0.25, 1, 3, 0.75, 1.25, 0.5};

  SparseCSR with(const NDArray& w) const {
    return SparseCSR::from_coo(array(rows), array(columns), w, {kNodes, kNodes});
  }
  SparseCSR sparse() const { return with(array(weights)); }
  /// The adjacency matrix, without using SparseCSR.
  std::vector<Values> dense() const {
    std::vector<Values> a(kNodes, Values(kNodes));
    for (size_t k = 0; k < rows.size(); ++k)
      a[static_cast<size_t>(rows[k])][static_cast<size_t>(columns[k])] += weights[k];
    return a;
  }
};

NDArray dense_matrix(const std::vector<Values>& rows) {
  Values all;
  for (const Values& row : rows) all.insert(all.end(), row.begin(), row.end());
  return array(all).reshape({static_cast<int64_t>(rows.size()), -1});
}

std::vector<Values> norm_by_loops(std::vector<Values> a, double loop) {
  for (size_t i = 0; i < kNodes; ++i)
    if (loop > 0 && a[i][i] == 0) a[i][i] = loop;
  Values degree(kNodes);
  for (size_t i = 0; i < kNodes; ++i)
    for (const double w : a[i]) degree[i] += w;
  for (size_t i = 0; i < kNodes; ++i)
    for (size_t j = 0; j < kNodes; ++j)
      if (a[i][j] != 0) a[i][j] = degree[j] > 0 ? a[i][j] / std::sqrt(degree[i] * degree[j]) : 0;
  return a;
}

TEST(GcnNorm, AgreesWithPlainLoops) {
  const SmallGraph graph;
  const auto expect = [&](const nn::GcnNormOptions& options, double loop, const char* what) {
    expect_values(values(dense_matrix(norm_by_loops(graph.dense(), loop))),
                  nn::gcn_norm(graph.sparse(), options).to_dense(), what);
  };
  expect({}, 1, "self-loops");
  expect({.improved = true}, 2, "improved");
  expect({.add_self_loops = false}, 0, "no self-loops");
}

TEST(GCNConv, ValuesAndGradientsAreThoseOfTheDenseFormula) {
  const SmallGraph graph;
  for (const bool cached : {false, true}) {
    nn::GCNConv layer(kIn, 3, {.cached = cached, .dtype = f64});
    {
      const NoGrad pause;
      layer.bias.copy_from(numbers({3}, f64, 2));
    }
    const NDArray n = dense_matrix(norm_by_loops(graph.dense(), 1)), head = numbers({kNodes, 3}, f64, 4);
    const NDArray x = numbers({kNodes, kIn}, f64, 3).requires_grad_();
    const SparseCSR a = graph.sparse();
    for (int call = 0; call < 2; ++call) {
      const NDArray y = layer(x, a);
      const NDArray want = matmul(n, matmul(x, layer.lin.weight->transpose())) + layer.bias;
      expect_values(values(want), y, "output", 10);
      const std::vector<NDArray> inputs = {x, layer.lin.weight, layer.bias};
      const auto expected = gradients({sum(want * head)}, inputs), got = gradients({sum(y * head)}, inputs);
      for (size_t i = 0; i < inputs.size(); ++i) expect_values(values(expected[i]), got[i], "gradient", 30);
      // Sparse features.
      expect_values(values(want), layer(SparseCSR::from_dense(x.detach()), a), "sparse features", 10);
    }
  }
}

TEST(GCNConv, WeightsOfEdgesGetGradients) {
  const SmallGraph graph;
  nn::GCNConv layer(kIn, 2, {.cached = true, .dtype = f64});
  const NDArray x = numbers({kNodes, kIn}, f64, 3);
  const auto loss = [&](const NDArray& w) { return sum(square(layer(x, graph.with(w)))); };
  const NDArray w = array(graph.weights).requires_grad_();
  const Values got = values(gradients({loss(w)}, {w})[0]);
  for (size_t k = 0; k < graph.weights.size(); ++k) {
    Values up = graph.weights, down = graph.weights;
    up[k] += 1e-5;
    down[k] -= 1e-5;
    const double slope = (loss(array(up)).item<double>() - loss(array(down)).item<double>()) / 2e-5;
    EXPECT_NEAR(slope, got[k], 1e-6 * (1 + std::abs(slope))) << k;
  }
}

TEST(GCNConv, TheCacheSeesAnotherGraphAndAChange) {
  const SmallGraph graph;
  nn::GCNConv cached(kIn, 2, {.cached = true, .dtype = f64});
  nn::GCNConv plain(kIn, 2, {.dtype = f64});
  plain.load_state_dict(cached.state_dict());
  const NDArray x = numbers({kNodes, kIn}, f64, 3);
  const SparseCSR first = graph.sparse(), second = graph.with(array(graph.weights) * 3 + 1);
  for (const SparseCSR& a : {first, second, first}) EXPECT_EQ(values(plain(x, a)), values(cached(x, a)));
  NDArray weights = first.values();
  weights += 1;
  EXPECT_EQ(values(plain(x, first)), values(cached(x, first)));
}

TEST(SAGEConv, AgreesWithPlainLoops) {
  const SmallGraph graph;
  nn::SAGEConv layer(kIn, 3, {.dtype = f64});
  const NDArray x = numbers({kNodes, kIn}, f64, 3);
  std::vector<Values> mean = graph.dense();
  for (Values& row : mean) {
    double count = 0;
    for (double& w : row) count += w = w != 0 ? 1 : 0;
    for (double& w : row) w /= std::max(1.0, count);
  }
  const NDArray want = matmul(matmul(dense_matrix(mean), x), layer.lin_l.weight->transpose()) +
                       layer.lin_l.bias + matmul(x, layer.lin_r.weight->transpose());
  expect_values(values(want), layer(x, graph.sparse()), "SAGEConv", 10);
  EXPECT_EQ(nn::SAGEConv(kIn, 3, {.root_weight = false}).parameters().size(), 2u);
}

TEST(GATConv, AgreesWithPlainLoops) {
  const SmallGraph graph;
  for (const bool concat : {true, false}) {
    nn::GATConv layer(kIn, 3, {.heads = 2, .concat = concat, .dtype = f64});
    const NDArray x = numbers({kNodes, kIn}, f64, 3);
    const Values h = values(matmul(x, layer.lin.weight->transpose())), src = values(layer.att_src.array()),
                 dst = values(layer.att_dst.array());
    const auto dot = [&](size_t node, size_t head, const Values& with) {
      double total = 0;
      for (size_t j = 0; j < 3; ++j) total += h[node * 6 + head * 3 + j] * with[head * 3 + j];
      return total;
    };
    std::vector<Values> adjacent = graph.dense();
    for (size_t i = 0; i < kNodes; ++i) adjacent[i][i] = 1;
    Values want(kNodes * (concat ? 6 : 3));
    for (size_t i = 0; i < kNodes; ++i)
      for (size_t head = 0; head < 2; ++head) {
        Values e(kNodes);
        double total = 0;
        for (size_t j = 0; j < kNodes; ++j) {
          if (adjacent[i][j] == 0) continue;
          const double score = dot(j, head, src) + dot(i, head, dst);
          total += e[j] = std::exp(score > 0 ? score : 0.2 * score);
        }
        for (size_t j = 0; j < kNodes; ++j)
          for (size_t c = 0; c < 3; ++c) {
            const double part = e[j] / total * h[j * 6 + head * 3 + c];
            want[concat ? i * 6 + head * 3 + c : i * 3 + c] += concat ? part : part / 2;
          }
      }
    const NDArray y = layer(x, graph.sparse());
    expect_values(want, y, "GATConv", 10);
    sum(y * y).backward();
    for (const auto& [name, parameter] : layer.parameters()) {
      // The gradient agrees with a finite difference along a random direction.
      const NDArray direction = numbers(parameter.shape(), f64, 8);
      const Values start = values(parameter.array());
      const auto loss_at = [&](double step) {
        const NoGrad pause;
        parameter.copy_from(array(start).reshape(parameter.shape()) + direction * step);
        const NDArray out = layer(x, graph.sparse());
        return sum(out * out).item<double>();
      };
      const double slope = (loss_at(1e-5) - loss_at(-1e-5)) / 2e-5,
                   got = sum(parameter.grad() * direction).item<double>();
      loss_at(0);
      EXPECT_NEAR(slope, got, 1e-6 * (1 + std::abs(slope))) << name;
    }
  }
}

TEST(GraphLayers, TheyHaveTheNamesOfPyTorchGeometric) {
  const auto names = [](const nn::Module& module) {
    std::vector<std::string> list;
    for (const auto& [name, array] : module.state_dict()) list.push_back(name);
    std::sort(list.begin(), list.end());
    return list;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names(nn::GCNConv(2, 3)), (Names{"bias", "lin.weight"}));
  EXPECT_EQ(names(nn::SAGEConv(2, 3)), (Names{"lin_l.bias", "lin_l.weight", "lin_r.weight"}));
  EXPECT_EQ(names(nn::GATConv(2, 3)), (Names{"att_dst", "att_src", "bias", "lin.weight"}));
}

TEST(GraphLayers, BadInputIsNamed) {
  const SparseCSR graph = SmallGraph().sparse().to(f32);
  expect_error<InvalidArgument>(
      "[GCNConv] expected features (7, channels), a row for each node, got shape (6, 5)", [&] {
        nn::GCNConv(5, 2)(ones({6, 5}), graph);
      });
  expect_error<InvalidArgument>("[SAGEConv] expected a graph (nodes, nodes), got shape (2, 3)", [&] {
    nn::SAGEConv(5, 2)(ones({2, 5}), SparseCSR::from_dense(ones({2, 3})));
  });
  expect_error<InvalidArgument>("got an empty handle", [&] { nn::GATConv(5, 2)(ones({2, 5}), SparseCSR()); });
  expect_error<InvalidArgument>("expected at least one head, got 0", [] { nn::GATConv(5, 2, {.heads = 0}); });
}

}  // namespace
}  // namespace mx
