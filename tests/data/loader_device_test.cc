// Batches on devices: the same bits as on the CPU, and memory that lives as long as it is used.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/device/virtual/virtual_device.h"
#include "nn/data/loader.h"
#include "operators/elementwise_binary.h"
#include "operators/reduce.h"
#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"
#include "tests/support/held.h"
#include "tests/support/live_memory.h"

namespace mx::data {
namespace {

using test::contains;
using test::error_of;

constexpr int64_t kWidth = 500;  // too wide to be stored inside a storage or to run immediately

ArrayDataset rows(int64_t n) {
  return ArrayDataset({(arange(n * kWidth).to(f32) * 0.001f).reshape({n, kWidth}), arange(n)});
}

LoaderOptions on(Context context, int64_t prefetch = 2) {
  return {.batch_size = 4,
          .shuffle = true,
          .seed = 1,
          .prefetch = prefetch,
          .context = context,
          .transform = add_noise(0.1)};
}

// Also runs with slow devices, so that operations pile up.
class LoaderDevice : public ::testing::TestWithParam<test::EngineCase> {
 protected:
  ~LoaderDevice() override {
    for (int i : {0, 1}) virtual_device(i).set_delay(0, 0, 0);
  }
};
INSTANTIATE_TEST_SUITE_P(Modes, LoaderDevice, ::testing::ValuesIn(test::all_cases()), test::CaseName());

TEST_P(LoaderDevice, BatchesHaveTheBitsOfTheCpu) {
  Engine engine(GetParam().options);
  EngineScope scope(engine);
  std::vector<std::vector<float>> results;
  for (const Context context : {cpu(), virt(0), virt(1)})
    for (int64_t prefetch : {0, 1, 4}) {
      Loader loader(rows(30), on(context, prefetch));
      NDArray sum = zeros({kWidth}, f32, context);
      for (int epoch = 0; epoch < 2; ++epoch)
        for (auto& [images, labels] : loader) {
          EXPECT_EQ(context, images.context());
          EXPECT_EQ(context, labels.context());
          sum = sum * 0.5f + mx::sum(images * labels.to(f32).expand_dims(1), 0);
        }
      results.push_back(sum.to_vector<float>());
      EXPECT_EQ(results[0], results.back()) << context << ", prefetch " << prefetch;
    }
}

TEST_P(LoaderDevice, LoopsMayBeLeftWithWorkUnderWay) {
  virtual_device(0).set_delay(7, 0, 200);
  Engine engine(GetParam().options);
  EngineScope scope(engine);
  for (int leave = 0; leave < 6; ++leave) {
    auto loader = std::make_unique<Loader>(rows(30), on(virt(0)));
    NDArray kept;
    try {
      for (auto& batch : *loader) {
        kept = batch.images() + 1;
        const NDArray dropped = batch.images() * 2;
        if (batch.number() < leave) continue;
        if (leave % 2 == 0) break;
        throw std::runtime_error("out");
      }
    } catch (const std::runtime_error&) {
    }
    if (leave % 3 == 0) loader.reset();
    if (leave % 2 == 1) kept.wait();
  }
}

// The engine is destroyed while batches, iterators and loaders still exist and copies are in flight.
TEST_P(LoaderDevice, AnEngineMayEndRightBehindALoop) {
  for (int round = 0; round < 5; ++round) {
    virtual_device(0).set_delay(static_cast<uint64_t>(round), 0, 300);
    Engine engine(GetParam().options);
    EngineScope scope(engine);
    Loader loader(rows(40), on(virt(0), 3));
    auto it = loader.begin();
    std::vector<Batch> kept;
    for (int k = 0; k < round; ++k, ++it) kept.push_back(*it);
    engine.shutdown();
  }
}

TEST_P(LoaderDevice, ACopyThatFailsFailsItsBatchAndNoOther) {
  Engine engine(GetParam().options);
  EngineScope scope(engine);
  LoaderOptions options = on(virt(1), 0);
  options.shuffle = false;
  options.transform = {};
  Loader loader(rows(16), options);
  std::vector<int> failed;
  int number = 0;
  auto it = loader.begin();
  for (; it != loader.end(); ++number) {
    const Batch batch = *it;
    try {
      EXPECT_EQ(static_cast<int64_t>(4 * number), batch.labels().to_vector<int64_t>()[0]);
      EXPECT_EQ(static_cast<float>(4 * number * kWidth) * 0.001f, batch.images().to_vector<float>()[0]);
    } catch (const DeviceError&) {
      failed.push_back(number);
    }
    if (number == 0) virtual_device(1).fail_next_copy(1);
    ++it;
    if (number == 0) {
      try {
        engine.wait_all();
      } catch (const DeviceError&) {
      }
    }
  }
  EXPECT_EQ(std::vector<int>{1}, failed);
  EXPECT_EQ(4, number);
}

// Device memory is free again after every object is destroyed.
TEST(LoaderMemory, OfTheDeviceGoesBack) {
  const auto in_use = [] { return virtual_device(0).memory_stats().in_use_bytes; };
  const size_t before = test::settled_bytes(in_use);
  {
    Engine engine(test::threaded_case(2).options);
    EngineScope scope(engine);
    Loader loader(rows(64), on(virt(0)));
    for (auto& [images, labels] : loader) images = images * 2;
    for (auto& batch : loader)
      if (batch.number() == 2) break;
  }
  EXPECT_EQ(test::settled_bytes(in_use), before);
}

// Only a few batches are in device memory at a time, even if the program runs ahead of the device.
TEST(LoaderMemory, OfTheDeviceIsThatOfTheBatchesThatAreLoadedAhead) {
  Engine engine(test::threaded_case(2).options);
  EngineScope scope(engine);
  virtual_device(2).set_delay(1, 0, 300);
  wait_all();
  virtual_device(2).reset_peak_memory();
  const size_t before = virtual_device(2).memory_stats().in_use_bytes;
  {
    Loader loader(rows(400), {.batch_size = 4, .prefetch = 1, .context = virt(2)});
    NDArray total = zeros({}, f32, virt(2));
    for (auto& [images, labels] : loader) total += sum(images);
    total.wait();
  }
  wait_all();
  virtual_device(2).set_delay(0, 0, 0);
  const size_t batch = 4 * kWidth * sizeof(float);
  // At most two batches that are loaded or used, and some whose memory is about to be released, of a hundred
  // batches in all.
  EXPECT_LE(virtual_device(2).memory_stats().peak_in_use_bytes, before + 10 * batch);
}

}  // namespace
}  // namespace mx::data
