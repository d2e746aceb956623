#include "comm/cost_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "comm/threads/thread_group.h"
#include "comm/transport_communicator.h"
#include "tests/comm/conformance.h"

namespace mx::comm {
namespace {

TEST(CostModel, GathersLittleDataAndExchangesMuch) {
  for (const int ranks : {3, 4, 8}) {
    const CostModel model(ranks);
    EXPECT_EQ(model.choose(64, Order::rank), Algorithm::gather) << ranks;
    EXPECT_EQ(model.choose(64 << 20, Order::rank), Algorithm::direct) << ranks;
  }
}

TEST(CostModel, KeepsTheOrderOfRanks) {
  CostModel model(8, 2);
  std::vector<CostModel::Sample> samples(2);
  samples[0] = {1024, {10, 9, 5, 1}};
  samples[1] = {1 << 20, {1000, 900, 500, 100}};
  model.set_samples(samples);
  EXPECT_EQ(model.choose(1024, Order::rank), Algorithm::direct);
  EXPECT_EQ(model.choose(1024, Order::any), Algorithm::two_level);
  EXPECT_EQ(model.choose(64 << 20, Order::rank), Algorithm::direct);
}

TEST(CostModel, UsesTwoLevelsOnlyWithSeveralHosts) {
  EXPECT_TRUE(std::isinf(CostModel(8, 1).predict_us(Algorithm::two_level, 1000)));
  EXPECT_TRUE(std::isinf(CostModel(8, 8).predict_us(Algorithm::two_level, 1000)));
  EXPECT_FALSE(std::isinf(CostModel(8, 2).predict_us(Algorithm::two_level, 1000)));
}

TEST(CostModel, InterpolatesBetweenMeasuredSizes) {
  CostModel model(2);
  model.set_samples({{2000, {30, 3, 1, -1}}, {1000, {10, 2, 1, -1}}});
  EXPECT_DOUBLE_EQ(model.predict_us(Algorithm::gather, 10), 10);
  EXPECT_DOUBLE_EQ(model.predict_us(Algorithm::gather, 1500), 20);
  EXPECT_DOUBLE_EQ(model.predict_us(Algorithm::gather, 4000), 70);
  EXPECT_DOUBLE_EQ(model.predict_us(Algorithm::ring, 4000), 1.5)
      << "time grows even if the measurement says it does not";
}

TEST(CostModel, IsMeasuredAlikeOnAllRanks) {
  const auto group = make_thread_group(3);
  std::mutex mutex;
  std::vector<std::string> tables;
  expect_ranks(group, [&](int, Communicator& member) {
    const CostModel model = dynamic_cast<TransportCommunicator&>(member).fit(20);
    EXPECT_FALSE(model.samples().empty());
    std::vector<float> values(50'000, 1.f);
    member.allreduce(values.data(), values.data(), values.size(), Type::f32);
    EXPECT_EQ(values, std::vector<float>(50'000, 3.f));
    std::lock_guard lock(mutex);
    tables.push_back(model.describe());
  });
  ASSERT_EQ(tables.size(), 3u);
  EXPECT_EQ(tables[0], tables[1]);
  EXPECT_EQ(tables[0], tables[2]);
  EXPECT_NE(tables[0].find("gather"), std::string::npos) << tables[0];
}

}  // namespace
}  // namespace mx::comm
