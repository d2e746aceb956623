// Recurrent layers on a GPU: without recorded gradients they give the states of the CPU, and store nothing
// for a backward pass.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/device/registry.h"
#include "engine/engine.h"
#include "operators/operators.h"
#include "operators/recurrent.h"
#include "tests/cuda/operators/compare.h"

namespace mx {
namespace {

constexpr int64_t kSteps = 40, kBatch = 4, kInputs = 5, kHidden = 16;

/// A layer on one device. Its weights record gradients if `trained`.
struct Layer {
  Layer(const std::string& cell, Context device, bool trained) : name(cell) {
    const int64_t width = (cell == "lstm" ? 4 : cell == "gru" ? 3 : 1) * kHidden;
    Generator numbers(5);
    const auto made = [&](const Shape& shape) { return numbers.normal(0, 0.3, shape, f32).to(device); };
    x = made({kSteps, kBatch, kInputs});
    h0 = made({kBatch, kHidden});
    c0 = made({kBatch, kHidden});
    weights = {made({width, kInputs}), made({width, kHidden}), made({width}), made({width})};
    if (trained) weights.w_ih.requires_grad_();
    for (const NDArray& array : {x, h0, c0, weights.w_ih, weights.w_hh, weights.b_ih, weights.b_hh})
      array.wait();
  }
  std::vector<NDArray> run() const {
    const RecurrentResult r = name == "rnn"   ? rnn(x, weights, h0)
                              : name == "gru" ? gru(x, weights, h0)
                                              : lstm(x, weights, h0, c0);
    std::vector<NDArray> results{r.y.detach(), r.h_n.detach()};
    if (name == "lstm") results.push_back(r.c_n.detach());
    for (const NDArray& result : results) result.wait();
    return results;
  }

  std::string name;
  NDArray x, h0, c0;
  RecurrentWeights weights;
};

/// The most memory of the device that the pass holds at once.
int64_t bytes_of_pass(const Layer& layer) {
  Device& device = get_device(layer.x.context());
  (void)layer.run();            // kernels are loaded
  current_engine().wait_all();  // earlier operations have freed what they used
  device.reset_peak_memory();
  const size_t before = device.memory_stats().in_use_bytes;
  (void)layer.run();
  return static_cast<int64_t>(device.memory_stats().peak_in_use_bytes - before);
}

TEST(RecurrentOnGpu, LayersWithoutGradientsHaveTheValuesOfTheCpuAndStoreNothing) {
  const Context device = test::tested_device();
  if (device.is_cpu()) GTEST_SKIP() << "there is no GPU";
  constexpr int64_t kActivations = kSteps * kBatch * 4 * kHidden * int64_t{sizeof(float)};
  for (const char* cell : {"rnn", "lstm", "gru"}) {
    SCOPED_TRACE(cell);
    const Layer inferred(cell, device, false), trained(cell, device, true);
    const std::vector<NDArray> expected = Layer(cell, cpu(), false).run(), got = inferred.run(),
                               recorded = trained.run();
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ("", test::difference_of(expected[i], got[i]));
      EXPECT_EQ("", test::difference_of(expected[i], recorded[i]));
    }
    if (inferred.name != "rnn") {
      EXPECT_LT(bytes_of_pass(inferred) + kActivations / 2, bytes_of_pass(trained));
    }
  }
}

}  // namespace
}  // namespace mx
