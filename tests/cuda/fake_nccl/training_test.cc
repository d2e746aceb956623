// Training by several ranks with a GPU each, on the stand-ins for CUDA and NCCL.
#include <gtest/gtest.h>

#include <barrier>
#include <memory>
#include <span>
#include <vector>

#include "executor/autograd/autograd.h"
#include "nn/nn.h"
#include "nn/trainer.h"
#include "operators/operators.h"
#include "optim/optimizers.h"
#include "tests/cuda/fake_nccl/gpu_stores.h"
#include "tests/kvstore/rank_values.h"

namespace mx {
namespace {

using test::GpuCall;
using test::GpuRank;

constexpr int64_t kImages = 12, kPixels = 9;
constexpr int kSteps = 5;

NDArray all_images() {
  Generator numbers(5);
  return numbers.normal(0, 1, {kImages, kPixels}, f32);
}

/// Trains with images [begin, end), and returns the sums of their losses.
std::vector<double> train(nn::Sequential& net, nn::Trainer& trainer, Context device, int64_t begin,
                          int64_t end) {
  const NDArray images = all_images().slice(0, Slice{begin, end}).to(device);
  const NDArray labels = (arange(kImages, i64) % 4).slice(0, Slice{begin, end}).to(device);
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    const NDArray loss =
        nn::cross_entropy(net(images), labels, {.reduction = "sum"}) / static_cast<float>(kImages);
    trainer.zero_grad();
    loss.backward();
    trainer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

std::shared_ptr<nn::Sequential> new_net(Context device) {
  Generator numbers(3);
  auto net = std::make_shared<nn::Sequential>(nn::Linear(kPixels, 16), nn::ReLU(), nn::Linear(16, 16),
                                              nn::ReLU(), nn::Linear(16, 4));
  for (NamedParameter& parameter : net->parameters()) {
    NDArray values = numbers.normal(0, 0.3, parameter.array().shape(), f32);
    NDArray(parameter.array().detach()).copy_from(values);
  }
  net->to(device);
  return net;
}

void expect_losses(const std::vector<std::vector<double>>& parts, const std::vector<double>& expected,
                   double tolerance) {
  for (size_t step = 0; step < expected.size(); ++step) {
    double sum = 0;
    for (const auto& part : parts) sum += part[step];
    EXPECT_NEAR(sum, expected[step], tolerance * expected[step]) << "step " << step;
  }
  EXPECT_LT(expected.back(), expected.front());
}

TEST(FakeNcclTraining, SeveralRanksHaveTheLossesOfOneProcess) {
  const auto whole = new_net(cpu());
  nn::Trainer alone(*whole, optim::SGDOptions{.lr = 0.5, .momentum = 0.9});
  const std::vector<double> expected = train(*whole, alone, cpu(), 0, kImages);
  for (const int ranks : {2, 3})
    for (const bool shards : {false, true}) {
      std::vector<std::vector<double>> losses(static_cast<size_t>(ranks));
      test::expect_no_errors(test::on_gpus(
          ranks,
          [&](const GpuRank& rank) {
            const std::shared_ptr<nn::Sequential> net = new_net(rank.device);
            // The test owns the store, and it outlives the trainer.
            const std::shared_ptr<KVStore> store(&rank.kv, [](KVStore*) {});
            nn::Trainer trainer(*net, optim::SGDOptions{.lr = 0.5, .momentum = 0.9}, store,
                                {.bucket_bytes = 500, .shard_optimizer = shards, .check_every = 2});
            const int64_t part = kImages / ranks, begin = rank.kv.rank() * part;
            rank.calls.take(comm::Collective::barrier);
            losses[static_cast<size_t>(rank.kv.rank())] =
                train(*net, trainer, rank.device, begin, begin + part);
            size_t sums = 0;
            const auto kind = shards ? comm::Collective::reduce_scatter : comm::Collective::allreduce;
            for (const GpuCall& call : rank.calls.take(kind)) {
              EXPECT_TRUE(call.on_device) << call.what;
              ++sums;
            }
            EXPECT_GE(sums, static_cast<size_t>(2 * kSteps)) << "several buckets in each step";
          },
          {.any_order = true}));
      expect_losses(losses, expected, 1e-4);
    }
}

// A kernel in the backward pass of the first layer waits until the gradients of the last layer have been
// summed over the ranks. There are more streams than operations in flight: with few streams, an operation may
// be enqueued behind one that it does not depend on.
TEST(FakeNcclTraining, GradientsOfLaterLayersAreSummedBeforeTheBackwardPassHasEnded) {
  constexpr int kRanks = 2;
  for (const bool any_order : {false, true}) {
    std::barrier both(kRanks);
    std::vector<std::vector<float>> weights(kRanks);
    test::expect_no_errors(test::on_gpus(
        kRanks,
        [&](const GpuRank& rank) {
          Generator numbers(3);
          nn::Linear first(kPixels, 8), last(8, 4);
          nn::Sequential net(first, last);
          for (NamedParameter& parameter : net.parameters())
            NDArray(parameter.array().detach())
                .copy_from(numbers.normal(0, 0.3, parameter.array().shape(), f32));
          net.to(rank.device);
          const std::shared_ptr<KVStore> store(&rank.kv, [](KVStore*) {});
          nn::Trainer trainer(net, optim::SGDOptions{.lr = 0.5}, store, {.bucket_bytes = 1});
          const NDArray images = (all_images() + static_cast<float>(rank.kv.rank())).to(rank.device);
          const NDArray labels = (arange(kImages, i64) % 4).to(rank.device);
          const auto push_step = [&](const std::shared_ptr<test::Gate>& gate) {
            const NDArray hidden = apply(
                {first(images)},
                [](std::span<const NDArray> in) { return std::vector<NDArray>{in[0] * 1.F}; },
                [gate](std::span<const NDArray> heads) {
                  NDArray held = heads[0] * 1.F;
                  test::push_held_kernel(held, 0, gate);
                  return std::vector<NDArray>{held};
                })[0];
            const NDArray loss = nn::cross_entropy(last(hidden), labels);
            trainer.zero_grad();
            loss.backward();
            trainer.step();
          };
          // The first step makes what later ones use again.
          const auto open = std::make_shared<test::Gate>(), gate = std::make_shared<test::Gate>();
          open->open();
          push_step(open);
          current_engine().wait_all();
          both.arrive_and_wait();
          push_step(gate);
          for (const char* key : {"gradient of 1.weight", "gradient of 1.bias"})
            EXPECT_TRUE(test::becomes_true([&] { return rank.calls.ended(key) == 2; })) << key;
          EXPECT_FALSE(gate->is_open());
          EXPECT_FALSE(first.weight.array().grad().wait(0)) << "the backward pass has ended";
          for (const char* key : {"gradient of 0.weight", "gradient of 0.bias"})
            EXPECT_EQ(rank.calls.ended(key), 1) << key;
          both.arrive_and_wait();
          gate->open();
          weights[static_cast<size_t>(rank.kv.rank())] =
              first.weight.array().detach().to(cpu()).to_vector<float>();
        },
        {.any_order = any_order}, {.compute_streams = 32}));
    EXPECT_EQ(weights[0], weights[1]);
  }
}

// One process with several GPUs: the store "device" adds up on the GPUs.
TEST(FakeNcclTraining, ReplicasOnSeveralGpusHaveTheBitsOfReplicasOnOne) {
  const NDArray images = all_images(), labels = arange(kImages, i64) % 4;
  const auto losses_on = [&](const std::vector<Context>& places) {
    const std::shared_ptr<nn::Sequential> net = new_net(cpu());
    std::vector<nn::Sequential> replicas = nn::replicate(*net, places);
    nn::Trainer trainer(replicas, optim::SGDOptions{.lr = 0.5}, KVStore::create("device"));
    std::vector<float> losses;
    for (int step = 0; step < kSteps; ++step) {
      const std::vector<NDArray> inputs = nn::split_batch(images, places),
                                 wanted = nn::split_batch(labels, places);
      trainer.zero_grad();
      std::vector<NDArray> shares;
      for (size_t r = 0; r < places.size(); ++r) {
        shares.push_back(nn::cross_entropy(replicas[r](inputs[r]), wanted[r], {.reduction = "sum"}));
        (shares[r] / static_cast<float>(kImages)).backward();
      }
      trainer.step();
      for (const NDArray& share : shares) losses.push_back(share.item<float>());
    }
    return losses;
  };
  const std::vector<float> one = losses_on({gpu(0), gpu(0), gpu(0)});
  EXPECT_LT(one[one.size() - 3], one[0]);
  EXPECT_EQ(losses_on({gpu(0), gpu(1), gpu(2)}), one);
  EXPECT_EQ(losses_on({gpu(2), gpu(0), gpu(2)}), one);
}

}  // namespace
}  // namespace mx
