#include "comm/cost_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <set>
#include <utility>

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

TEST(CostModel, DoesNotGatherMuchDataWhateverWasMeasured) {
  CostModel model(4);
  model.set_samples({{1024, {1, 9, 9, -1}}, {256 * 1024, {1, 900, 900, -1}}});
  EXPECT_EQ(model.choose(64 * 1024, Order::rank), Algorithm::gather);
  EXPECT_EQ(model.choose(16 << 20, Order::rank), Algorithm::direct) << "needs memory for all ranks' data";
  EXPECT_TRUE(std::isinf(model.predict_us(Algorithm::gather, 16 << 20)));
}

TEST(CostModel, RepairsDisturbedAndMissingMeasurements) {
  CostModel model(3);
  model.set_samples({{1000, {50, 7, 1, -1}}, {2000, {20, 8, -1, -1}}, {4000, {40, 9, -1, -1}}});
  EXPECT_DOUBLE_EQ(model.predict_us(Algorithm::gather, 1000), 20) << "not longer than with more data";
  EXPECT_DOUBLE_EQ(model.predict_us(Algorithm::ring, 4000), 4) << "in proportion to the bytes";
  EXPECT_TRUE(std::isinf(model.predict_us(Algorithm::two_level, 1000))) << "one host";
}

// Sizes on both sides of every size that is measured.
constexpr size_t kFitTestCounts[] = {1, 100, 511, 513, 5'000, 8'193, 20'000, 65'537, 100'000};

// Counts the messages of a rank.
class CountingTransport final : public Transport {
 public:
  CountingTransport(std::unique_ptr<Transport> inner, int64_t& sent)
      : inner_(std::move(inner)), sent_(sent) {}
  const std::string& type() const override { return inner_->type(); }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string host(int rank) const override { return inner_->host(rank); }
  void post_send(int peer, const void* data, size_t bytes) override {
    ++sent_;
    inner_->post_send(peer, data, bytes);
  }
  void post_receive(int peer, void* data, size_t bytes) override { inner_->post_receive(peer, data, bytes); }
  void await_receive(int peer, Deadline deadline) override { inner_->await_receive(peer, deadline); }
  size_t await_first(const std::vector<int>& peers, Deadline deadline) override {
    return inner_->await_first(peers, deadline);
  }
  uint64_t arrived(int peer) const override { return inner_->arrived(peer); }
  void finish(Deadline deadline) override { inner_->finish(deadline); }
  void flush(Deadline deadline) noexcept override { inner_->flush(deadline); }
  void abort(std::exception_ptr reason) override { inner_->abort(std::move(reason)); }

 private:
  const std::unique_ptr<Transport> inner_;
  int64_t& sent_;
};

// Fits the model of a group, checks that all ranks come to the same choices and that sums in the order of the
// ranks keep their bits. Returns the messages that each rank sent for the fit.
std::vector<int64_t> fit_group(int ranks, const ThreadTransportOptions& options) {
  std::vector<int64_t> sent(static_cast<size_t>(ranks)), fit_sent = sent;
  std::vector<std::shared_ptr<Communicator>> group;
  for (auto& transport : make_thread_transports(ranks, options)) {
    int64_t& count = sent[static_cast<size_t>(transport->rank())];
    group.push_back(std::make_shared<TransportCommunicator>(
        std::make_unique<CountingTransport>(std::move(transport), count), 60'000));
  }
  std::mutex mutex;
  std::set<std::string> tables, choices;
  expect_ranks(group, [&](int rank, Communicator& member) {
    const CostModel model = dynamic_cast<TransportCommunicator&>(member).fit();
    fit_sent[static_cast<size_t>(rank)] = sent[static_cast<size_t>(rank)];
    std::string chosen;
    for (const size_t count : kFitTestCounts) {
      for (const Order order : {Order::rank, Order::any})
        chosen += std::to_string(static_cast<int>(model.choose(count * sizeof(float), order)));
      std::vector<std::vector<unsigned char>> rows;
      for (int r = 0; r < ranks; ++r) rows.push_back(test_data(Type::f32, count, r, count));
      std::vector<unsigned char> sum(rows[0].size());
      member.allreduce(rows[static_cast<size_t>(rank)].data(), sum.data(), count, Type::f32);
      EXPECT_EQ(sum, serial_fold(rows, Type::f32)) << count;
      // All ranks get equal bits in any order too; a disagreement on the algorithm would throw.
      CallOptions any;
      any.order = Order::any;
      member.allreduce(rows[static_cast<size_t>(rank)].data(), sum.data(), count, Type::f32, any);
    }
    std::lock_guard lock(mutex);
    EXPECT_EQ(model.samples().size(), 3u);
    tables.insert(model.describe());
    choices.insert(chosen);
  });
  EXPECT_EQ(tables.size(), 1u) << *tables.begin();
  EXPECT_EQ(choices.size(), 1u) << *choices.begin();
  return fit_sent;
}

TEST(CostModel, IsFittedAlikeOnAllRanksHoweverTheirTimesDiffer) {
  for (const int ranks : {2, 3, 5})
    for (const uint64_t seed : {0, 1, 2, 3}) {
      ThreadTransportOptions options;
      options.delay_seed = seed;
      fit_group(ranks, options);
    }
  ThreadTransportOptions two_hosts;
  two_hosts.hosts = {"a", "a", "b", "b"};
  fit_group(4, two_hosts);
}

TEST(CostModel, FittingTakesTheSameMessagesHoweverLongTheyTake) {
  ThreadTransportOptions slow;
  slow.delay_seed = 7;
  for (const int ranks : {2, 4}) {
    const std::vector<int64_t> messages = fit_group(ranks, {});
    EXPECT_EQ(fit_group(ranks, slow), messages);
    // Sizes x algorithms x calls. In each, a rank sends at most a header and two pieces to every other, or
    // one piece in each of the ring's 2 (ranks - 1) steps; the factor leaves room for a broadcast.
    const int64_t calls = 3 * 3 * (TransportCommunicator::kFitRepeats + 1);
    for (const int64_t sent : messages) EXPECT_LE(sent, calls * (ranks - 1) * 4);
  }
}

}  // namespace
}  // namespace mx::comm
