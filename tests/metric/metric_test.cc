// Metrics, compared with plain loops.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "nn/metric/metric.h"
#include "operators/elementwise_binary.h"
#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"
#include "tests/support/held.h"

namespace mx::metric {
namespace {

using test::contains;
using test::error_of;

struct Scores {
  int64_t n, classes;
  std::vector<float> values;  // with many ties
  std::vector<int64_t> labels;

  Scores(int64_t rows, int64_t c, uint32_t seed) : n(rows), classes(c) {
    std::mt19937 random(seed);
    for (int64_t i = 0; i < n * classes; ++i) values.push_back(static_cast<float>(random() % 8) * 0.25f - 1);
    for (int64_t i = 0; i < n; ++i)
      labels.push_back(static_cast<int64_t>(random() % static_cast<uint32_t>(c)));
  }
  NDArray logits() const { return from_data(values.data(), {n, classes}); }
  NDArray targets() const { return array(labels); }

  /// Returns the classes of a row in order of descending score, by sorting.
  std::vector<int64_t> ranking(int64_t row) const {
    std::vector<int64_t> order;
    for (int64_t c = 0; c < classes; ++c) order.push_back(c);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return values[static_cast<size_t>(row * classes + a)] > values[static_cast<size_t>(row * classes + b)];
    });
    return order;
  }
  int64_t hits(int64_t k) const {
    int64_t count = 0;
    for (int64_t i = 0; i < n; ++i) {
      const std::vector<int64_t> order = ranking(i);
      count += std::count(order.begin(), order.begin() + k, labels[static_cast<size_t>(i)]);
    }
    return count;
  }
};

class MetricModes : public ::testing::TestWithParam<test::EngineCase> {
 protected:
  Engine engine_{GetParam().options};
  EngineScope scope_{engine_};
};
INSTANTIATE_TEST_SUITE_P(Modes, MetricModes, ::testing::ValuesIn(test::all_cases()), test::CaseName());

TEST_P(MetricModes, TopKIsWhatSortingGives) {
  const Scores sizes[] = {{1, 3, 1}, {7, 10, 2}, {3000, 10, 3}, {50, 1000, 4}};
  for (const Scores& scores : sizes)
    for (int64_t k : {int64_t{1}, int64_t{2}, scores.classes}) {
      TopK metric(k);
      EXPECT_TRUE(std::isnan(metric.value()));
      metric.update(scores.logits(), scores.targets());
      EXPECT_EQ(scores.hits(k), metric.hits());
      EXPECT_EQ(scores.n, metric.count());
      EXPECT_EQ(static_cast<double>(scores.hits(k)) / static_cast<double>(scores.n), metric.value());
    }
}

TEST_P(MetricModes, UpdatesAddUpUntilReset) {
  const Scores a(100, 5, 1), b(37, 5, 2);
  Accuracy metric;
  for (int i = 0; i < 50; ++i) {
    metric.update(a.logits(), a.targets());
    metric.update(b.logits(), b.targets());
  }
  EXPECT_EQ(50 * (a.hits(1) + b.hits(1)), metric.hits());
  EXPECT_EQ(50 * 137, metric.count());
  metric.reset();
  EXPECT_EQ(0, metric.count());
  metric.update(b.logits(), b.targets());
  EXPECT_EQ(static_cast<double>(b.hits(1)) / 37, metric.value());
}

TEST_P(MetricModes, TypesLayoutsAndDevicesDoNotMatter) {
  const Scores scores(300, 7, 5);
  const double expected = static_cast<double>(scores.hits(1)) / 300;
  for (DType type : {f32, f64, f16, bf16})
    for (DType label_type : {i64, i32, u8, i8})
      for (const Context where : {cpu(), virt(0)}) {
        Accuracy metric;
        metric.update(scores.logits().to(type).to(where), scores.targets().to(label_type));
        metric.update(scores.logits().to(type), scores.targets().to(label_type).to(where));
        EXPECT_EQ(expected, metric.value()) << type << ", " << label_type << " on " << where;
      }
  Accuracy strided({.axis = 0});
  strided.update(scores.logits().transpose().clone(), scores.targets());
  strided.update(scores.logits().transpose(), scores.targets());
  EXPECT_EQ(expected, strided.value());
  Accuracy reversed;
  reversed.update(scores.logits().slice(0, {{}, {}, -1}), scores.targets().slice(0, {{}, {}, -1}));
  EXPECT_EQ(expected, reversed.value());
}

TEST_P(MetricModes, ALabelThatIsNoClassComesOutOfValueUntilReset) {
  for (int64_t rows : {3, 5000}) {
    Accuracy metric;
    ConfusionMatrix matrix(4);
    const NDArray logits = zeros({rows, 4});
    NDArray labels = zeros({rows}, i64);
    labels[2] = 4;
    metric.update(logits, labels);
    metric.update(logits, zeros({rows}, i64));  // skipped, because the previous update failed
    matrix.update(logits, labels);
    for (int i = 0; i < 2; ++i) {
      const std::string message = error_of<InvalidArgument>([&] { metric.value(); });
      EXPECT_TRUE(contains(message, "expected labels from 0 to 3 or -100, got 4 at position 2")) << message;
      error_of<InvalidArgument>([&] { matrix.value(); });
    }
    metric.reset();
    matrix.reset();
    metric.update(logits, zeros({rows}, i64));
    matrix.update(logits, zeros({rows}, i64));
    EXPECT_EQ(1, metric.value());
    EXPECT_EQ(1, matrix.value());
  }
}

TEST_P(MetricModes, CopiesShareTheirCounts) {
  const Scores scores(10, 3, 1);
  Accuracy one;
  Accuracy other = one;
  one.update(scores.logits(), scores.targets());
  other.update(scores.logits(), scores.targets());
  EXPECT_EQ(20, one.count());
  other.reset();
  EXPECT_EQ(0, one.count());
}

TEST(Metrics, UpdateReturnsBeforeItsArgumentsAreThere) {
  Engine engine(test::threaded_case(2).options);
  EngineScope scope(engine);
  test::Hold hold;
  const Scores scores(100, 5, 1);
  NDArray logits = scores.logits();
  engine.push_async(hold.operation(), {.updates = {logits.var()}});
  Accuracy metric;
  metric.update(logits, scores.targets());
  hold.release();
  EXPECT_EQ(scores.hits(1), metric.hits());
}

TEST(Metrics, ThreadsMayUpdateOneAtOnce) {
  const Scores scores(500, 4, 1);
  TopK metric(2);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 25; ++i) metric.update(scores.logits(), scores.targets());
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(100 * scores.hits(2), metric.hits());
  EXPECT_EQ(100 * 500, metric.count());
}

TEST(Metrics, TiesGoToTheLowerClassAndNanIsTheHighest) {
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  const NDArray logits = array({{1.f, 1.f, 0.f}, {0.f, nan, inf}, {nan, nan, 1.f}, {-inf, -inf, -inf}});
  Accuracy first;
  first.update(logits, array({0, 1, 0, 0}));
  EXPECT_EQ(4, first.hits());
  Accuracy second;
  second.update(logits, array({1, 2, 1, 1}));
  EXPECT_EQ(0, second.hits());
  TopK two(2);
  two.update(logits, array({1, 2, 1, 1}));
  EXPECT_EQ(4, two.hits());
  ConfusionMatrix matrix(3);
  matrix.update(logits, array({2, 2, 2, 2}));
  EXPECT_EQ((std::vector<int64_t>{0, 0, 0, 0, 0, 0, 3, 1, 0}), matrix.matrix().to_vector<int64_t>());
}

TEST(Metrics, ClassesMayBeAnyDimensionAndPlacesMayBeIgnored) {
  const Scores scores(2 * 5 * 6, 4, 9);
  // (n, h, w, c) as (n, c, h, w)
  const NDArray logits = scores.logits().reshape({2, 5, 6, 4}).transpose({0, 3, 1, 2});
  std::vector<int64_t> labels = scores.labels;
  int64_t hits = 0, count = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    if (i % 3 == 0) labels[i] = 255;
    count += i % 3 != 0;
    hits += i % 3 != 0 && scores.ranking(static_cast<int64_t>(i))[0] == labels[i];
  }
  Accuracy metric({.axis = 1, .ignore_index = 255});
  metric.update(logits, array(labels).reshape({2, 5, 6}));
  metric.update(logits.clone(), array(labels).reshape({2, 5, 6}));
  EXPECT_EQ(2 * hits, metric.hits());
  EXPECT_EQ(2 * count, metric.count());
  Accuracy nothing({.axis = 1, .ignore_index = 255});
  nothing.update(zeros({0, 4, 5, 6}), zeros({0, 5, 6}, i64));
  nothing.update(logits, full({2, 5, 6}, 255, i64));
  EXPECT_TRUE(std::isnan(nothing.value()));
}

TEST(Metrics, WhatDoesNotFitIsRefusedAtTheUpdate) {
  Accuracy metric;
  const auto refuse = [&](const NDArray& logits, const NDArray& labels, const std::string& part) {
    const std::string message = error_of<InvalidArgument>([&] { metric.update(logits, labels); });
    EXPECT_TRUE(contains(message, part)) << message;
  };
  refuse({}, zeros({2}, i64), "got nothing and i64 (2,)");
  refuse(zeros({2, 3}), {}, "and nothing");
  refuse(zeros({2, 3}, i32), zeros({2}, i64), "floating-point logits");
  refuse(full({}, 1.f), zeros({2}, i64), "a dimension of classes");
  refuse(zeros({2, 3}), zeros({3}, i64), "expected integer labels of shape (2,) for logits (2, 3)");
  refuse(zeros({2, 3}), zeros({2, 1}, i64), "got i64 (2, 1)");
  refuse(zeros({2, 3}), zeros({2}), "integer labels");
  refuse(zeros({2, 0}), zeros({2}, i64), "1 classes or more");
  error_of<InvalidArgument>([] { TopK(4).update(zeros({2, 3}), zeros({2}, i64)); });
  error_of<InvalidArgument>([] { Accuracy({.axis = 2}).update(zeros({2, 3}), zeros({2}, i64)); });
  error_of<InvalidArgument>([] { ConfusionMatrix(4).update(zeros({2, 3}), zeros({2}, i64)); });
  error_of<InvalidArgument>([] { TopK(0); });
  error_of<InvalidArgument>([] { ConfusionMatrix(0); });
  metric.update(zeros({2, 3}), zeros({2}, i64));
  EXPECT_EQ(1, metric.value()) << "a refused update changes nothing";
}

TEST(ConfusionMatrixTest, CountsAndWhatFollowsFromThem) {
  const Scores scores(400, 5, 8);
  ConfusionMatrix metric(5);
  metric.update(scores.logits().slice(0, {0, 150}), scores.targets().slice(0, {0, 150}));
  metric.update(scores.logits().slice(0, {150, 400}), scores.targets().slice(0, {150, 400}));
  std::vector<int64_t> counts(25);
  for (int64_t i = 0; i < 400; ++i)
    ++counts[static_cast<size_t>(scores.labels[static_cast<size_t>(i)] * 5 + scores.ranking(i)[0])];
  EXPECT_EQ(counts, metric.matrix().to_vector<int64_t>());
  EXPECT_EQ(static_cast<double>(scores.hits(1)) / 400, metric.value());
  const std::vector<double> precision = metric.precision(), recall = metric.recall(), f1 = metric.f1();
  for (size_t c = 0; c < 5; ++c) {
    double row = 0, column = 0;
    for (size_t i = 0; i < 5; ++i) {
      row += static_cast<double>(counts[c * 5 + i]);
      column += static_cast<double>(counts[i * 5 + c]);
    }
    const auto right = static_cast<double>(counts[c * 5 + c]);
    EXPECT_DOUBLE_EQ(right / column, precision[c]);
    EXPECT_DOUBLE_EQ(right / row, recall[c]);
    EXPECT_NEAR(2 * precision[c] * recall[c] / (precision[c] + recall[c]), f1[c], 1e-12);
  }
  metric.reset();
  EXPECT_TRUE(std::isnan(metric.value()) && std::isnan(metric.precision()[0]) && std::isnan(metric.f1()[4]));
}

TEST(MeanLossTest, IsTheMeanOverSamples) {
  MeanLoss metric;
  EXPECT_TRUE(std::isnan(metric.value()));
  metric.update(full({}, 2.f), 10);
  metric.update(full({}, 5.f).to(virt(0)), 5);
  EXPECT_DOUBLE_EQ((2. * 10 + 5. * 5) / 15, metric.value());
  metric.update(array({1.0, 2.0, 3.0}));
  EXPECT_DOUBLE_EQ((2. * 10 + 5. * 5 + 6) / 18, metric.value());
  metric.reset();
  metric.update(arange(100000).to(f32).reshape({100, 1000}).transpose());
  EXPECT_DOUBLE_EQ(99999. / 2, metric.value());
  error_of<InvalidArgument>([&] { metric.update(zeros({2}, i64)); });
  error_of<InvalidArgument>([&] { metric.update({}); });
  error_of<InvalidArgument>([&] { metric.update(zeros({}), 0); });
}

TEST(CompositeTest, UpdatesAllAndNamesThem) {
  const Scores scores(60, 6, 3);
  Accuracy accuracy;
  Composite all;
  all.add("top1", accuracy).add("top3", TopK(3)).add("loss", MeanLoss());
  all.update(scores.logits(), scores.targets(), full({}, 0.5f));
  all.update(scores.logits().slice(0, {0, 20}), scores.targets().slice(0, {0, 20}), full({}, 2.f));
  const auto values = all.values();
  ASSERT_EQ(3u, values.size());
  EXPECT_EQ("top1", values[0].first);
  EXPECT_EQ(80, accuracy.count()) << "a copy shares its counts";
  EXPECT_EQ(accuracy.value(), values[0].second);
  EXPECT_EQ(values[1].second, all.value("top3"));
  EXPECT_DOUBLE_EQ((60 * 0.5 + 20 * 2.) / 80, all.value("loss"));
  EXPECT_TRUE(
      contains(error_of<InvalidArgument>([&] { all.update(scores.logits(), scores.targets()); }), "'loss'"));
  error_of<InvalidArgument>([&] { all.value("top2"); });
  error_of<InvalidArgument>([&] { all.add("loss", Accuracy()); });
  all.reset();
  EXPECT_TRUE(std::isnan(all.value("loss")) && accuracy.count() == 0);
}

// Updating a metric with arrays that are recorded for gradients records nothing and keeps nothing of the
// graph.
TEST(Metrics, NothingIsRecorded) {
  const Scores scores(60, 6, 3);
  const NDArray logits = scores.logits();
  // A recorded operator call would need the tape, which is not linked into this test.
  logits.impl().flags |= mx::detail::kRecorded;
  Accuracy accuracy;
  accuracy.update(logits, scores.targets());
  MeanLoss loss;
  loss.update(logits);
  EXPECT_EQ(scores.hits(1), accuracy.hits());
  EXPECT_FALSE(std::isnan(loss.value()));
  logits.impl().flags |= mx::detail::kSymbolic;
  EXPECT_TRUE(
      contains(error_of<InvalidArgument>([&] { accuracy.update(logits, scores.targets()); }), "graph"));
}

}  // namespace
}  // namespace mx::metric
