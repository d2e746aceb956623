// Row-sparse gradients of Embedding: the same values as dense ones, and updates of the rows of the batch
// alone.
#include "operators/row_sparse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "executor/autograd/autograd.h"
#include "kvstore/kvstore.h"
#include "ndarray/grad_mode.h"
#include "nn/embedding.h"
#include "nn/trainer.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/indexing.h"
#include "operators/reduce.h"
#include "optim/adaptive.h"
#include "optim/optimizers.h"
#include "tests/operators/values.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::expect_error;
using test::numbers;
using test::Values;
using test::values;

constexpr int64_t kTableRows = 12, kTableWidth = 5;

NDArray batch_indices() { return array<int64_t>({{7, 2, 7}, {0, 11, 2}}); }
const std::vector<int64_t> kTakenRows = {0, 2, 7, 11};

nn::Embedding new_table(bool sparse, DType dtype = f32, Context context = cpu()) {
  nn::Embedding table(kTableRows, kTableWidth, {.sparse = sparse, .context = context, .dtype = dtype});
  const NoGrad pause;
  table.weight.copy_from(numbers({kTableRows, kTableWidth}, f32, 3).to(dtype).to(context));
  return table;
}

NDArray table_loss(nn::Embedding& table, const NDArray& indices, uint64_t seed) {
  const NDArray y = table(indices);
  return sum(y * y * numbers(y.shape(), f32, seed).to(y.dtype()).to(y.context()));
}

bool in_batch(size_t row) {
  return std::find(kTakenRows.begin(), kTakenRows.end(), static_cast<int64_t>(row)) != kTakenRows.end();
}

TEST(RowSparse, TheGradientHoldsTheRowsOfTheBatch) {
  for (const DType type : {f64, f32, f16, bf16}) {
    nn::Embedding dense = new_table(false, type), sparse = new_table(true, type);
    table_loss(dense, batch_indices(), 5).backward();
    table_loss(sparse, batch_indices(), 5).backward();
    const auto part = row_sparse(sparse.weight.grad());
    ASSERT_TRUE(part.has_value());
    EXPECT_EQ(part->rows.to_vector<int64_t>(), (std::vector<int64_t>{0, 2, 7, 11, kTableRows, kTableRows}));
    EXPECT_EQ(part->values.shape(), (Shape{6, kTableWidth}));
    EXPECT_EQ(sparse.weight.grad().shape(), (Shape{kTableRows, kTableWidth}));
    // Reading makes the dense form.
    EXPECT_EQ(values(dense.weight.grad()), values(sparse.weight.grad()));
    EXPECT_FALSE(row_sparse(sparse.weight.grad()).has_value());
    EXPECT_EQ(values(dense.weight.grad()), values(sparse.weight.grad()));
  }
}

TEST(RowSparse, PaddingHasNoGradient) {
  nn::Embedding table(kTableRows, 2, {.padding_idx = 7, .sparse = true});
  sum(table(batch_indices())).backward();
  const auto part = row_sparse(table.weight.grad());
  ASSERT_TRUE(part.has_value());
  EXPECT_EQ(part->rows.to_vector<int64_t>(), (std::vector<int64_t>{0, 2, 11, 12, 12, 12}));
  EXPECT_EQ(values(part->values), (Values{1, 1, 2, 2, 1, 1, 0, 0, 0, 0, 0, 0}));
}

TEST(RowSparse, SeveralUsesAndPassesAddUp) {
  nn::Embedding dense = new_table(false), sparse = new_table(true);
  for (nn::Embedding* table : {&dense, &sparse}) {
    const NDArray two = array<int64_t>({1, 7});
    (table_loss(*table, two, 1) + table_loss(*table, two + 1, 2)).backward();  // two uses in one pass
    table_loss(*table, two, 3).backward();                                     // another pass
  }
  EXPECT_TRUE(row_sparse(sparse.weight.grad()).has_value());
  EXPECT_EQ(values(dense.weight.grad()), values(sparse.weight.grad()));
}

TEST(RowSparse, DenseGradientsAddToIt) {
  nn::Embedding dense = new_table(false), sparse = new_table(true);
  for (nn::Embedding* table : {&dense, &sparse}) {
    const NDArray& w = table->weight.array();
    (table_loss(*table, batch_indices(), 1) + sum(w * w)).backward();
    table_loss(*table, batch_indices(), 2).backward();
  }
  EXPECT_FALSE(row_sparse(sparse.weight.grad()).has_value());
  EXPECT_EQ(values(dense.weight.grad()), values(sparse.weight.grad()));
}

TEST(RowSparse, HooksFunctionsAndSecondDerivativesSeeTheDenseForm) {
  nn::Embedding dense = new_table(false, f64), sparse = new_table(true, f64);
  std::vector<Values> seen, first, second;
  for (nn::Embedding* table : {&dense, &sparse}) {
    const NDArray& w = table->weight.array();
    const HookHandle hook = w.add_grad_hook([&](const NDArray& gradient) {
      seen.push_back(values(gradient));
      return gradient * 2;
    });
    table_loss(*table, batch_indices(), 4).backward();
    first.push_back(values(table->weight.grad()));
    const NDArray g = gradients({table_loss(*table, batch_indices(), 4)}, {w}, {.create_graph = true})[0];
    second.push_back(values(gradients({sum(g * g)}, {w})[0]));
  }
  EXPECT_EQ(seen[0], seen[1]);
  EXPECT_EQ(first[0], first[1]);
  EXPECT_EQ(second[0], second[1]);
}

/// Trains a dense and a sparse table for some steps; returns their weights.
template <class Optimizer>
std::pair<Values, Values> train_both(const typename Optimizer::Options& options, DType type = f32) {
  std::vector<Values> results;
  for (const bool sparse : {false, true}) {
    nn::Embedding table = new_table(sparse, type);
    Optimizer optimizer(table.parameters(), options);
    for (uint64_t step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      table_loss(table, step % 2 == 0 ? batch_indices() : array<int64_t>({3, 2}), step).backward();
      optimizer.step();
      EXPECT_EQ(sparse, row_sparse(table.weight.grad()).has_value()) << "a step must not read the gradient";
    }
    results.push_back(values(table.weight.array()));
  }
  return {results[0], results[1]};
}

TEST(RowSparse, WithoutDecayingStateStepsAreThoseOfADenseGradient) {
  for (const DType type : {f64, f32, bf16}) {
    const auto sgd = train_both<optim::SGD>({.lr = 0.1, .max_norm = 0.5}, type);
    EXPECT_EQ(sgd.first, sgd.second);
    const auto adagrad = train_both<optim::Adagrad>({.lr = 0.1}, type);
    EXPECT_EQ(adagrad.first, adagrad.second);
  }
}

TEST(RowSparse, AdamUpdatesOnlyTheRowsOfTheBatch) {
  nn::Embedding table = new_table(true, f64);
  const Values start = values(table.weight.array());
  optim::Adam optimizer(table.parameters(), {.lr = 0.1, .weight_decay = 0.01});
  Values w = start, m(w.size()), v(w.size());
  for (int step = 1; step <= 3; ++step) {
    optimizer.zero_grad();
    table_loss(table, batch_indices(), 9).backward();
    nn::Embedding dense = new_table(false, f64);
    {
      const NoGrad pause;
      dense.weight.copy_from(table.weight.detach());
    }
    table_loss(dense, batch_indices(), 9).backward();
    const Values g = values(dense.weight.grad());
    optimizer.step();
    for (size_t i = 0; i < w.size(); ++i) {
      if (!in_batch(i / kTableWidth)) continue;
      const double gradient = g[i] + 0.01 * w[i];
      m[i] = 0.9 * m[i] + 0.1 * gradient;
      v[i] = 0.999 * v[i] + 0.001 * gradient * gradient;
      w[i] -= 0.1 * m[i] / (1 - std::pow(0.9, step)) / (std::sqrt(v[i] / (1 - std::pow(0.999, step))) + 1e-8);
    }
  }
  const Values got = values(table.weight.array());
  for (size_t i = 0; i < w.size(); ++i) {
    EXPECT_NEAR(w[i], got[i], 1e-12) << i;
    EXPECT_TRUE(in_batch(i / kTableWidth) || start[i] == got[i]) << i;
  }
  const NamedArrays state = optimizer.state_dict();
  for (const auto& [name, array] : state)
    EXPECT_TRUE(!name.ends_with("step") || values(array) == Values{3}) << name;
}

TEST(RowSparse, OptimisersOfWholeParametersReadTheDenseForm) {
  std::vector<Values> results;
  for (const bool sparse : {false, true}) {
    nn::Embedding table = new_table(sparse);
    const auto lamb = optim::make_optimizer("lamb", {{"lr", 0.1}}, table.parameters());
    table_loss(table, batch_indices(), 1).backward();
    lamb->step();
    results.push_back(values(table.weight.array()));
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST(RowSparse, AFailedBatchIsRecovered) {
  nn::Embedding table = new_table(true);
  const Values before = values(table.weight.array());
  optim::Adam optimizer(table.parameters(), {.lr = 0.1});
  table(array<int64_t>({1, 99})).detach();
  table_loss(table, array<int64_t>({1, 99}), 1).backward();
  optimizer.step();
  expect_error<InvalidArgument>("got 99 at position (1,)", [&] { table.weight.array().wait(); });
  optimizer.zero_grad();
  optimizer.recover();
  EXPECT_EQ(before, values(table.weight.array()));
}

TEST(RowSparse, ReplicasOfOneProcessAddTheirRows) {
  std::vector<Values> results;
  for (const bool sparse : {false, true}) {
    nn::Embedding table = new_table(sparse);
    std::vector<nn::Embedding> replicas = nn::replicate(table, {virt(0), virt(1)});
    nn::Trainer trainer(replicas, optim::SGDOptions{.lr = 0.1}, KVStore::create("device"));
    for (uint64_t step = 0; step < 3; ++step) {
      trainer.zero_grad();
      table_loss(replicas[0], array<int64_t>({1, 2}).to(virt(0)), step).backward();
      table_loss(replicas[1], array<int64_t>({2, 5}).to(virt(1)), step + 7).backward();
      trainer.step();
    }
    EXPECT_EQ(values(replicas[0].weight.array()), values(replicas[1].weight.array()));
    results.push_back(values(replicas[0].weight.array()));
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST(RowSparse, SumsAgreeWithPlainLoops) {
  const NDArray v = numbers({200, 7}, f64);
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < 200; ++i) indices.push_back(i * i % 31 - (i % 3 == 0 ? 31 : 0));
  const RowSparse got = sum_rows(array(indices), v, 31, 5);
  Values want(31 * 7);
  const Values x = values(v);
  for (size_t i = 0; i < 200; ++i)
    for (size_t j = 0; j < 7; ++j) want[static_cast<size_t>((indices[i] + 31) % 31) * 7 + j] += x[i * 7 + j];
  for (size_t j = 0; j < 7; ++j) want[5 * 7 + j] = 0;
  NDArray dense = zeros({31, 7}, f64);
  put_rows(dense, got);
  test::expect_values(want, dense, "sum_rows", 50);
}

TEST(RowSparse, RecordedTablesAndValuesAreRefused) {
  const NDArray rows = array<int64_t>({1});
  NDArray leaf = ones({4, 2}).requires_grad_(), result = leaf * 2, plain = ones({4, 2});
  const NDArray values = ones({1, 2}).requires_grad_() * 3;
  expect_error<InvalidState>("[put_rows] expected a table and values that are not recorded", [&] {
    put_rows(leaf, {rows, zeros({1, 2})});
  });
  expect_error<InvalidState>("got recorded a table", [&] { put_rows(result, {rows, zeros({1, 2})}); });
  expect_error<InvalidState>("got recorded values", [&] { put_rows(plain, {rows, values}); });
  EXPECT_EQ(Values(8, 1), test::values(leaf.detach()));
  const NoGrad pause;
  put_rows(leaf, {rows, values});
  EXPECT_EQ((Values{1, 1, 3, 3, 1, 1, 1, 1}), test::values(leaf.detach()));
}

// A gradient that has been read is a dense array, to which a later pass adds in place; another one is
// replaced.
TEST(RowSparse, AGradientThatIsHeldBetweenTwoPasses) {
  for (const bool read : {false, true}) {
    NDArray table = ones({10, 2}).requires_grad_();
    const auto pass = [&](const NDArray& indices, double factor) {
      sum(embedding(table, indices, -1, true) * factor).backward();
    };
    pass(array<int64_t>({1, 3, 3}), 2);
    const NDArray first = table.grad();
    if (read) {
      EXPECT_EQ(4, first[3][0].item<float>());
    }
    EXPECT_EQ(!read, row_sparse(first).has_value());
    pass(array<int64_t>({3, 7}), 5);
    Values want(20);
    for (const auto& [row, value] : {std::pair{1, 2.}, {3, 9.}, {7, 5.}})
      for (int j : {0, 1}) want[static_cast<size_t>(2 * row + j)] = value;
    EXPECT_EQ(want, test::values(table.grad()));
    if (!read) {
      for (int j : {0, 1}) want[static_cast<size_t>(6 + j)] = 4, want[static_cast<size_t>(14 + j)] = 0;
    }
    EXPECT_EQ(want, test::values(first)) << "read " << read;
  }
}

TEST(RowSparse, BadInputIsNamed) {
  expect_error<InvalidArgument>("[sum_rows] expected indices (n,) and values (n, width)", [] {
    sum_rows(array<int64_t>({1}), ones({2, 2}), 4);
  });
  expect_error<InvalidArgument>("of 4 rows", [] { sum_rows(array<int64_t>({1}), ones({2, 2}), 4); });
  expect_error<InvalidArgument>("got 5 at position (0,)", [] {
    sum_rows(array<int64_t>({5}), ones({1, 2}), 4).values.wait();
  });
  NDArray table = zeros({4, 2});
  expect_error<InvalidArgument>("[put_rows] expected rows i64 (n,)", [&] {
    put_rows(table, {array<int64_t>({1}), ones({1, 3})});
  });
}

}  // namespace
}  // namespace mx
