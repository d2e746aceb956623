// SyncBatchNorm: batch normalisation of processes, which are threads here, is that of the joined batch.
#include "nn/sync_norm.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "executor/autograd/autograd.h"
#include "ndarray/grad_mode.h"
#include "nn/nn.h"
#include "operators/operators.h"
#include "tests/kvstore/rank_threads.h"
#include "tests/kvstore/rank_values.h"
#include "tests/kvstore/store_cases.h"
#include "tests/support/errors.h"
#include "tests/support/numeric_gradient.h"

namespace mx {
namespace {

using test::contains;
using test::expect_error;
using test::on_ranks;
using Numbers = std::vector<double>;

constexpr int64_t kChannels = 3;

/// The layer's results, each as one list: of all rows of the batch in order, or of the channels.
struct NormOutcome {
  Numbers y, dx, second, dweight, dbias, mean, var;
  int64_t batches = 0;
};

template <class Layer>
void set_norm_parameters(Layer& layer) {
  const NoGrad pause;
  layer.weight.copy_from(array({0.5, 1.5, -2.}));
  layer.bias.copy_from(array({1., 0., -1.}));
}

/// Two calls with other rows, and gradients and second derivatives of the second one. `begin` to `end`: rows
/// of the whole batch that this process has.
template <class Layer>
NormOutcome run_norm(Layer& layer, const Shape& shape, int64_t begin, int64_t end, DType type) {
  const auto rows = [&](uint64_t seed) -> NDArray {
    return (test::some(shape, seed) + 3).slice(0, Slice{begin, end}).to(type).clone();
  };
  const auto numbers = [](const NDArray& a) -> Numbers { return a.to(f64).to_vector<double>(); };
  NormOutcome out;
  layer(rows(1));
  const NDArray x = rows(2).requires_grad_();
  const NDArray y = layer(x), loss = sum(square(y) * rows(3));
  const NDArray g = gradients({loss}, {x}, {.create_graph = true})[0];
  out.second = numbers(gradients({sum(g * g * rows(4))}, {x}, {.retain_graph = true})[0]);
  loss.backward();
  out.y = numbers(y);
  out.dx = numbers(x.grad());
  out.dweight = numbers(layer.weight.grad());
  out.dbias = numbers(layer.bias.grad());
  out.mean = numbers(layer.running_mean);
  out.var = numbers(layer.running_var);
  out.batches = layer.num_batches_tracked.template item<int64_t>();
  return out;
}

void append_numbers(Numbers& all, const Numbers& part) { all.insert(all.end(), part.begin(), part.end()); }

void compare_with_joined(const std::vector<int64_t>& parts, Shape shape, std::optional<double> momentum,
                         DType type, double tolerance) {
  shape[0] = std::accumulate(parts.begin(), parts.end(), int64_t{0});
  nn::BatchNorm2d whole(kChannels, {.momentum = momentum, .dtype = type});
  set_norm_parameters(whole);
  const NormOutcome expected = run_norm(whole, shape, 0, shape[0], type);
  std::vector<NormOutcome> found(parts.size());
  const std::vector<std::string> errors = on_ranks(static_cast<int>(parts.size()), [&](KVStore& store) {
    const auto rank = static_cast<size_t>(store.rank());
    const std::shared_ptr<KVStore> shared(std::shared_ptr<void>(), &store);
    nn::SyncBatchNorm layer(kChannels, {.momentum = momentum, .store = shared, .dtype = type});
    set_norm_parameters(layer);
    const int64_t begin = std::accumulate(parts.begin(), parts.begin() + store.rank(), int64_t{0});
    found[rank] = run_norm(layer, shape, begin, begin + parts[rank], type);
    layer.eval();  // predicting sends nothing, so the ranks may do it at other times
    if (rank == 0) layer(ones({2, kChannels, 1, 1}, type)).wait();
  });
  for (const std::string& error : errors) EXPECT_EQ("", error);
  Numbers y, dx, second, dweight(kChannels), dbias(kChannels);
  for (const NormOutcome& part : found) {
    append_numbers(y, part.y);
    append_numbers(dx, part.dx);
    append_numbers(second, part.second);
    for (size_t c = 0; c < kChannels && !part.dweight.empty(); ++c) {
      dweight[c] += part.dweight[c];
      dbias[c] += part.dbias[c];
    }
    test::expect_close(expected.mean, part.mean, tolerance, "running mean");
    test::expect_close(expected.var, part.var, tolerance, "running variance");
    EXPECT_EQ(2, part.batches);
  }
  test::expect_close(expected.y, y, tolerance, "y");
  test::expect_close(expected.dx, dx, 10 * tolerance, "dx");
  test::expect_close(expected.dweight, dweight, 10 * tolerance, "dweight");
  test::expect_close(expected.dbias, dbias, 10 * tolerance, "dbias");
  test::expect_close(expected.second, second, 100 * tolerance, "second derivative");
}

TEST(SyncBatchNorm, GivesWhatBatchNormGivesForTheJoinedBatch) {
  compare_with_joined({3, 2}, {0, kChannels, 2, 3}, 0.1, f64, 1e-11);
  compare_with_joined({1, 4, 2}, {0, kChannels, 1, 1}, {}, f64, 1e-11);
  compare_with_joined({3, 2}, {0, kChannels, 2, 3}, 0.25, f32, 1e-4);
}

TEST(SyncBatchNorm, AProcessMayHaveAnEmptyBatch) {
  compare_with_joined({3, 0, 2}, {0, kChannels, 2, 3}, 0.1, f64, 1e-11);
}

TEST(SyncBatchNorm, NothingChangesIfAllBatchesAreEmpty) {
  const std::vector<std::string> errors = on_ranks(2, [&](KVStore& store) {
    nn::SyncBatchNorm layer(2, {.store = std::shared_ptr<KVStore>(std::shared_ptr<void>(), &store)});
    EXPECT_EQ(Shape({0, 2, 3}), layer(zeros({0, 2, 3})).shape());
    EXPECT_EQ((std::vector<float>{0, 0}), layer.running_mean.to_vector<float>());
    EXPECT_EQ((std::vector<float>{1, 1}), layer.running_var.to_vector<float>());
    EXPECT_EQ(0, layer.num_batches_tracked.item<int64_t>());
  });
  for (const std::string& error : errors) EXPECT_EQ("", error);
}

TEST(SyncBatchNorm, OneValueOfEachChannelIsTooFew) {
  const std::vector<std::string> errors = on_ranks(2, [&](KVStore& store) {
    nn::SyncBatchNorm layer(2, {.store = std::shared_ptr<KVStore>(std::shared_ptr<void>(), &store)});
    const NDArray few = layer(ones({store.rank() == 0 ? 1 : 0, 2}));
    const std::string message = test::error_of<InvalidArgument>([&] { few.wait(); });
    EXPECT_TRUE(contains(message, "more than one value of each channel in all processes together"))
        << message;
    EXPECT_TRUE(contains(message, "sync_norm_test.cc:")) << message;
    EXPECT_EQ((std::vector<float>{0, 0}), layer.running_mean.to_vector<float>());
    EXPECT_EQ((std::vector<float>{1, 1}), layer.running_var.to_vector<float>());
    EXPECT_EQ(0, layer.num_batches_tracked.item<int64_t>());
    // One value in each process is enough.
    const NDArray x = full({1, 2}, store.rank() * 2.0);
    EXPECT_NEAR(store.rank() == 0 ? -1 : 1, layer(x).to_vector<float>()[0], 1e-4);
    EXPECT_EQ(1, layer.num_batches_tracked.item<int64_t>());
  });
  for (const std::string& error : errors) EXPECT_EQ("", error);
}

TEST(SyncBatchNorm, WithoutOthersItIsBatchNorm) {
  const NDArray x = test::some({4, 3, 2, 2}, 1).to(f32);
  nn::BatchNorm2d plain(3);
  for (const std::shared_ptr<KVStore>& store : {std::shared_ptr<KVStore>(), KVStore::create("local")}) {
    nn::SyncBatchNorm layer(3, {.store = store});
    EXPECT_EQ(plain(x).to_vector<float>(), layer(x).to_vector<float>());
    expect_error<InvalidArgument>("[SyncBatchNorm] expected an array of rank 2 to 5 with 3 channels", [&] {
      layer(ones({2, 4}));
    });
  }
  EXPECT_EQ((nn::BatchNorm2d(3).state_dict().size()), nn::SyncBatchNorm(3).state_dict().size());
}

TEST(AllReduce, SumsValuesAndGradientsInTheOrderOfTheRanks) {
  const std::vector<std::string> errors = on_ranks(3, [&](KVStore& store) {
    const std::shared_ptr<KVStore> shared(std::shared_ptr<void>(), &store);
    const double own = store.rank() + 1;
    const NDArray x = full({2}, own).requires_grad_();
    const NDArray y = nn::all_reduce(x * x, shared);
    EXPECT_EQ((Numbers{14, 14}), y.to_vector<double>());
    // d(sum over ranks of rank * sum(y)) / dx = (0 + 1 + 2) * 2 x
    sum(y * store.rank()).backward();
    EXPECT_EQ((Numbers{6 * own, 6 * own}), x.grad().to_vector<double>());
    expect_error<InvalidArgument>("floating-point", [&] { nn::all_reduce(x.to(i32), shared); });
  });
  for (const std::string& error : errors) EXPECT_EQ("", error);
  expect_error<InvalidArgument>("sync_norm_test.cc", [] { nn::all_reduce(ones({1}), nullptr); });
}

// Gradients would go through the operation that computed the old value.
TEST(AllReduce, WhichIsRecordedIsAdvisedWhereAStoreWouldFillARecordedResult) {
  const auto body = [](KVStore& kv) {
    const NDArray w = ones({2}).requires_grad_();
    const NDArray y = w * 3;
    kv.init("k", zeros({2}));
    const auto refused = [](const std::function<void()>& call) {
      const std::string message = test::error_of<InvalidState>(call);
      EXPECT_TRUE(contains(message, "detach()") && contains(message, "nn::all_reduce()")) << message;
    };
    refused([&] { kv.pull("k", y); });
    refused([&] { kv.allreduce({"a"}, {y}, {y}); });
    refused([&] { kv.pushpull("k", y, y); });
    refused([&] { kv.broadcast_from_first({"b"}, {y}); });
    sum(y * y).backward();
    EXPECT_EQ((std::vector<float>{18, 18}), w.grad().to_vector<float>());
    // A parameter takes a value.
    const Parameter p(ones({2}).requires_grad_());
    kv.pull("k", p);
    kv.allreduce({"p"}, {p}, {p.array()});
    EXPECT_EQ((std::vector<float>{0, 0}), p.array().to_vector<float>());
  };
  body(*KVStore::create("local"));
  for (const std::string& error : on_ranks(2, body)) EXPECT_EQ("", error);
}

// Gradients would go through the operation, which did not compute the new value.
class RecordedResults : public ::testing::TestWithParam<test::StoreCase> {};

TEST_P(RecordedResults, AreNotFilledByStores) {
  test::expect_no_errors(test::on_stores(GetParam(), [&](KVStore& kv) {
    kv.init("table", ones({4, 3}));
    NDArray weight = ones({4, 3}).requires_grad_();
    NDArray result = weight * 2, flat = result.reshape({12});
    const std::vector<std::function<void()>> calls = {
        [&] { kv.row_sparse_pull("table", array<int64_t>({1}), result); },
        [&] { kv.pull("table", result); },
        [&] {
          kv.allreduce({"table"}, {ones({4, 3})}, {result});
        },
        [&] { kv.sum_slices("table", flat); },
        [&] { kv.gather_slices("table", flat); },
    };
    for (size_t i = 0; i < calls.size(); ++i)
      EXPECT_TRUE(contains(test::error_of<InvalidState>(calls[i]), "to take the value of key \"table\""))
          << i;
    kv.row_sparse_pull("table", array<int64_t>({1}), weight);  // a parameter
    EXPECT_EQ(std::vector<float>(12, 2), flat.to_vector<float>());
  }));
}

INSTANTIATE_TEST_SUITE_P(Stores, RecordedResults, ::testing::ValuesIn(test::store_cases()),
                         [](const auto& c) { return c.param.name(); });

}  // namespace
}  // namespace mx
