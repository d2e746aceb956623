// Metrics of probabilities, numbers and scores, compared with plain loops over all samples.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "nn/metric/likelihood.h"
#include "nn/metric/metric.h"
#include "nn/metric/regression.h"
#include "nn/metric/scores.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/reduce.h"
#include "operators/softmax.h"
#include "tests/support/called_at.h"
#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"

namespace mx::metric {
namespace {

using test::contains;
using test::error_of;

/// Predicted classes and labels, and one-hot logits of the predictions.
struct Decisions {
  int64_t classes;
  std::vector<int64_t> labels, predictions;

  Decisions(int64_t n, int64_t c, uint32_t seed) : classes(c) {
    std::mt19937 random(seed);
    const auto any = [&] { return static_cast<int64_t>(random() % static_cast<uint32_t>(c)); };
    for (int64_t i = 0; i < n; ++i) {
      labels.push_back(any());
      predictions.push_back(random() % 3 != 0 ? labels.back() : any());
    }
  }
  NDArray logits() const {
    std::vector<float> values(labels.size() * static_cast<size_t>(classes), 0.0f);
    for (size_t i = 0; i < labels.size(); ++i)
      values[i * static_cast<size_t>(classes) + static_cast<size_t>(predictions[i])] = 1;
    return from_data(values.data(), {static_cast<int64_t>(labels.size()), classes});
  }
  /// Counts samples.
  double count(const std::function<bool(int64_t label, int64_t prediction)>& which) const {
    double sum = 0;
    for (size_t i = 0; i < labels.size(); ++i) sum += which(labels[i], predictions[i]);
    return sum;
  }
  double right(int64_t c) const {
    return count([&](int64_t l, int64_t p) { return l == c && p == c; });
  }
  double precision(int64_t c) const {
    return right(c) / count([&](int64_t, int64_t p) { return p == c; });
  }
  double recall(int64_t c) const {
    return right(c) / count([&](int64_t l, int64_t) { return l == c; });
  }
  double f1(int64_t c) const { return 2 / (1 / precision(c) + 1 / recall(c)); }
};

double correlation(const std::vector<double>& x, const std::vector<double>& y) {
  const auto n = static_cast<double>(x.size());
  double mean_x = 0, mean_y = 0, xx = 0, yy = 0, xy = 0;
  for (size_t i = 0; i < x.size(); ++i) mean_x += x[i] / n, mean_y += y[i] / n;
  for (size_t i = 0; i < x.size(); ++i) {
    xx += (x[i] - mean_x) * (x[i] - mean_x);
    yy += (y[i] - mean_y) * (y[i] - mean_y);
    xy += (x[i] - mean_x) * (y[i] - mean_y);
  }
  return xy / std::sqrt(xx * yy);
}

TEST(Scores, AreThoseOfTheirDefinitions) {
  const Decisions two(500, 2, 1), many(700, 6, 2);
  const auto with = [](auto metric, const Decisions& d) {
    metric.update(d.logits(), array(d.labels));
    return metric.value();
  };
  EXPECT_NEAR(two.f1(1), with(F1(), two), 1e-12);
  EXPECT_NEAR(two.precision(1), with(Precision(), two), 1e-12);
  EXPECT_NEAR(two.recall(1), with(Recall(), two), 1e-12);
  double f1 = 0, precision = 0, recall = 0, right = 0;
  for (int64_t c = 0; c < 6; ++c) {
    f1 += many.f1(c) / 6;
    precision += many.precision(c) / 6;
    recall += many.recall(c) / 6;
    right += many.right(c);
  }
  EXPECT_NEAR(f1, with(F1(6, Average::macro), many), 1e-12);
  EXPECT_NEAR(precision, with(Precision(6, Average::macro), many), 1e-12);
  EXPECT_NEAR(recall, with(Recall(6, Average::macro), many), 1e-12);
  EXPECT_NEAR(right / 700, with(F1(6, Average::micro), many), 1e-12);
  EXPECT_NEAR(right / 700, with(Recall(6, Average::micro), many), 1e-12);
  EXPECT_TRUE(std::isnan(F1().value()));
  EXPECT_TRUE(std::isnan(F1(3, Average::macro).value()));
  error_of<InvalidArgument>([] { F1(3); });
}

// For two classes it is Pearson's correlation of labels and predictions; for more, that of their one-hot
// codes without dividing by each column's deviation.
TEST(Scores, MatthewsIsACorrelation) {
  const Decisions two(400, 2, 3), many(600, 5, 4);
  MCC binary, multi(5);
  EXPECT_TRUE(std::isnan(binary.value()));
  binary.update(two.logits(), array(two.labels));
  multi.update(many.logits(), array(many.labels));
  EXPECT_NEAR(
      correlation({two.labels.begin(), two.labels.end()}, {two.predictions.begin(), two.predictions.end()}),
      binary.value(), 1e-12);
  double xx = 0, yy = 0, xy = 0;
  for (int64_t c = 0; c < 5; ++c) {
    const double n = 600, x = many.count([&](int64_t l, int64_t) { return l == c; }) / n;
    const double y = many.count([&](int64_t, int64_t p) { return p == c; }) / n;
    xx += x - x * x;
    yy += y - y * y;
    xy += many.right(c) / n - x * y;
  }
  EXPECT_NEAR(xy / std::sqrt(xx * yy), multi.value(), 1e-12);
  MCC constant;
  constant.update(array({{0.0f, 1.0f}, {0.0f, 1.0f}}), array({int64_t{0}, int64_t{1}}));
  EXPECT_EQ(0, constant.value());
}

TEST(Scores, TheAreaUnderTheCurveCountsPairs) {
  std::mt19937 random(5);
  std::vector<float> scores;
  std::vector<int64_t> labels;
  RocAuc metric;
  EXPECT_TRUE(std::isnan(metric.value()));
  for (int batch = 0; batch < 4; ++batch) {
    std::vector<float> x;
    std::vector<int64_t> y;
    for (int i = 0; i < 60; ++i) {
      y.push_back(random() % 3 == 0);
      x.push_back(static_cast<float>(random() % 20) + (y.back() ? 3.0f : 0.0f));  // with many ties
    }
    NDArray given = array(x);
    metric.update(given, array(y));
    given.fill_(-1);  // must not matter
    scores.insert(scores.end(), x.begin(), x.end());
    labels.insert(labels.end(), y.begin(), y.end());
  }
  double won = 0, pairs = 0;
  for (size_t i = 0; i < scores.size(); ++i)
    for (size_t k = 0; k < scores.size(); ++k) {
      if (labels[i] != 1 || labels[k] != 0) continue;
      ++pairs;
      won += scores[i] > scores[k] ? 1 : scores[i] == scores[k] ? 0.5 : 0;
    }
  EXPECT_NEAR(won / pairs, metric.value(), 1e-12);
  metric.update(array({1.0f}), array({int64_t{2}}));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { metric.value(); }), "labels 0 and 1, got 2"));
  metric.reset();
  metric.update(array({1.0f, std::nanf("")}), array({int64_t{0}, int64_t{1}}));
  EXPECT_TRUE(std::isnan(metric.value()));
  error_of<InvalidArgument>([&] { metric.update(ones({2}), ones({2})); });
  error_of<InvalidArgument>([&] { metric.update(ones({2}), ones({3}, i64)); });
}

class FurtherMetricModes : public ::testing::TestWithParam<test::EngineCase> {
 protected:
  Engine engine_{GetParam().options};
  EngineScope scope_{engine_};
};
INSTANTIATE_TEST_SUITE_P(Modes, FurtherMetricModes, ::testing::ValuesIn(test::all_cases()), test::CaseName());

TEST_P(FurtherMetricModes, LikelihoodsAreThoseOfALoop) {
  std::mt19937 random(6);
  std::normal_distribution<double> normal;
  for (const int64_t rows : {1, 3000}) {
    constexpr int64_t kClasses = 7;
    std::vector<double> x(static_cast<size_t>(rows * kClasses));
    std::vector<int64_t> y(static_cast<size_t>(rows));
    for (double& v : x) v = static_cast<float>(500 * normal(random) * (random() % 2));
    for (int64_t& v : y) v = random() % 5 == 0 ? -100 : static_cast<int64_t>(random() % kClasses);
    y[0] = 3;
    double loss = 0, count = 0;
    for (int64_t i = 0; i < rows; ++i) {
      const double* const row = x.data() + i * kClasses;
      const int64_t label = y[static_cast<size_t>(i)];
      if (label == -100) continue;
      long double sum = 0;  // does not overflow for differences of up to 11,000
      for (int64_t c = 0; c < kClasses; ++c)
        sum += std::exp(static_cast<long double>(row[c]) - static_cast<long double>(row[label]));
      loss += static_cast<double>(std::log(sum));
      ++count;
    }
    const NDArray logits = from_data(x.data(), {rows, kClasses}), labels = array(y);
    for (const DType type : {f64, f32}) {
      CrossEntropy metric;
      EXPECT_TRUE(std::isnan(metric.value()));
      metric.update(logits.to(type), labels);
      EXPECT_NEAR(loss / count, metric.value(), 1e-9 * (1 + loss / count));
      NLL nll;
      nll.update(log_softmax(logits.to(type)).to(virt(0)), labels);
      EXPECT_NEAR(loss / count, nll.value(), 1e-5 * (1 + loss / count));
    }
    CrossEntropy turned({.axis = 0});
    turned.update(logits.transpose(), labels);
    EXPECT_NEAR(loss / count, turned.value(), 1e-9 * (1 + loss / count));
    Perplexity perplexity;
    perplexity.update(logits / 500.0, labels);
    CrossEntropy small;
    small.update(logits / 500.0, labels);
    EXPECT_EQ(std::exp(small.value()), perplexity.value());
  }
  Perplexity uniform;
  uniform.update(zeros({5, 8}), zeros({5}, i64));
  EXPECT_NEAR(8, uniform.value(), 1e-12);
  CrossEntropy bad;
  bad.update(zeros({2, 3}), array({int64_t{0}, int64_t{3}}));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { bad.value(); }), "labels from 0 to 2 or -100, got 3"));
  bad.reset();
  bad.update(full({1, 2}, std::nan("")), zeros({1}, i64));
  EXPECT_TRUE(std::isnan(bad.value()));
  error_of<InvalidArgument>([] { wait_all(); });
}

TEST_P(FurtherMetricModes, ErrorsAndCorrelationAreThoseOfALoop) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  std::vector<double> x, y;
  MAE mae;
  MSE mse;
  RMSE rmse;
  Pearson pearson;
  const std::vector<PairMetric*> all = {&mae, &mse, &rmse, &pearson};
  for (PairMetric* metric : all) EXPECT_TRUE(std::isnan(metric->value()));
  for (int batch = 0; batch < 5; ++batch) {
    std::vector<double> a, b;
    for (int i = 0; i < 24; ++i) {
      a.push_back(static_cast<float>(5 + normal(random)));
      b.push_back(static_cast<float>(3 + 0.5 * a.back() + normal(random)));
    }
    for (PairMetric* metric : all) {
      if (batch % 2 == 0) {
        metric->update(array(a), array(b).to(f32));
      } else {
        metric->update(array(a).reshape({4, 6}).transpose().to(virt(0)),
                       array(b).reshape({4, 6}).transpose());
      }
    }
    x.insert(x.end(), a.begin(), a.end());
    y.insert(y.end(), b.begin(), b.end());
  }
  double absolute = 0, squared = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    absolute += std::fabs(x[i] - y[i]) / static_cast<double>(x.size());
    squared += (x[i] - y[i]) * (x[i] - y[i]) / static_cast<double>(x.size());
  }
  EXPECT_NEAR(absolute, mae.value(), 1e-12);
  EXPECT_NEAR(squared, mse.value(), 1e-12);
  EXPECT_NEAR(std::sqrt(squared), rmse.value(), 1e-12);
  EXPECT_NEAR(correlation(x, y), pearson.value(), 1e-12);
  mae.reset();
  EXPECT_TRUE(std::isnan(mae.value()));
  mae.update(array({int64_t{3}}), array({int64_t{5}}));
  EXPECT_EQ(2, mae.value());
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { mae.update(ones({2}), ones({3})); }), "[mae]"));
  Pearson constant;
  constant.update(ones({3}), array({1.0f, 2.0f, 3.0f}));
  EXPECT_TRUE(std::isnan(constant.value()));
}

// The sums of the squares of a constant that has no short binary form are not exactly n times its square.
TEST(Metrics, TheCorrelationWithAConstantIsNaN) {
  for (const double value : {0.1, 0.3, 1e6 + 0.7})
    for (const int64_t n : {2, 3, 10, 49}) {
      Pearson x, y, batches;
      const NDArray other = arange(n).to(f64) * 0.77 + 1e8;
      x.update(full({n}, value, f64), other);
      y.update(other, full({n}, value, f64));
      for (int64_t i = 0; i < n; ++i) batches.update(full({1}, value, f64), other.slice(0, {i, i + 1}));
      EXPECT_TRUE(std::isnan(x.value())) << value << ' ' << n;
      EXPECT_TRUE(std::isnan(y.value())) << value << ' ' << n;
      EXPECT_TRUE(std::isnan(batches.value())) << value << ' ' << n;
      batches.update(array({value + 1}), array({1e9}));
      EXPECT_FALSE(std::isnan(batches.value())) << value << ' ' << n;
    }
}

TEST(Metrics, LargeMeansDoNotChangeTheCorrelation) {
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  std::vector<double> x, y;
  Pearson near, far;
  for (int i = 0; i < 30; ++i) {
    x.push_back(std::round(normal(random) * 1024) / 1024);  // the sums below are exact
    y.push_back(std::round((x.back() + normal(random)) * 1024) / 1024);
  }
  near.update(array(x), array(y));
  far.update(array(x) + 1e8, array(y) - 1e9);
  EXPECT_NEAR(correlation(x, y), near.value(), 1e-12);
  EXPECT_NEAR(near.value(), far.value(), 1e-7);
}

TEST(Metrics, ErrorsRefuseBoolByItsType) {
  MAE mae;
  const std::string message = error_of<InvalidArgument>([&] { mae.update(zeros({2}, bool_), zeros({2})); });
  EXPECT_TRUE(contains(message, "a type of numbers, got bool (2,)")) << message;
}

TEST(Metrics, TheProgramsOwnFunctionIsAveraged) {
  Custom error([](const NDArray& x, const NDArray& y) { return abs(x - y); });
  Composite all;
  all.add("error", error).add("rmse", RMSE());
  all.update(array({1.0f, 2.0f}), array({2.0f, 4.0f}));
  all.update(array({0.0f}), array({6.0f}));
  EXPECT_DOUBLE_EQ(3, all.value("error"));
  EXPECT_DOUBLE_EQ(std::sqrt(41.0 / 3), all.value("rmse"));
  error.reset();
  EXPECT_TRUE(std::isnan(all.value("error")));
  error_of<InvalidArgument>([] { Custom none(nullptr); });
}

/// A store of two processes, the other of which has the values of `other`.
struct TwoProcesses {
  std::map<std::string, NDArray> other;
  int rank() const { return 1; }
  int size() const { return 2; }
  void allreduce(const std::vector<std::string>& keys, const std::vector<NDArray>& values,
                 const std::vector<NDArray>& outs) {
    NDArray(outs[0]).copy_from(values[0] + other.at(keys[0]));
  }
};

TEST(Metrics, SumsOverProcessesAreThoseOfAllSamples) {
  const Decisions a(50, 3, 8), b(70, 3, 9);
  Composite mine, others, all;
  for (Composite* metrics : {&mine, &others, &all})
    metrics->add("accuracy", Accuracy())
        .add("f1", F1(3, Average::macro))
        .add("perplexity", Perplexity())
        .add("custom", Custom([](const NDArray& logits, const NDArray&) { return logits; }));
  mine.update(a.logits(), array(a.labels));
  others.update(b.logits(), array(b.labels));
  all.update(a.logits(), array(a.labels));
  all.update(b.logits(), array(b.labels));
  TwoProcesses store;
  for (const auto& [name, metric] : others.metrics())
    for (size_t i = 0; i < metric->sums().size(); ++i)
      store.other["test " + name + ' ' + std::to_string(i)] = metric->sums()[i];
  sync(mine, store, "test");
  for (const auto& [name, value] : all.values()) EXPECT_NEAR(value, mine.value(name), 1e-12) << name;
  // Moments do not add up: the other process sends its row of the table.
  Pearson own, elsewhere, together;
  const NDArray x = array({0.1, 0.2, 0.7, -3.0, 0.4}), y = array({1.0, -1.5, 0.25, 0.5, 9.0});
  const auto update = [&](Pearson& metric, int64_t begin, int64_t end) {
    metric.update(x.slice(0, {begin, end}), y.slice(0, {begin, end}));
  };
  update(own, 0, 2);
  update(elsewhere, 2, 5);
  update(together, 0, 5);
  store.other["r 0"] = metric::detail::as_row(elsewhere.sums()[0], 0, 2);
  sync(own, store, "r");
  EXPECT_NEAR(together.value(), own.value(), 1e-12);
  const std::string message = error_of<InvalidArgument>([&] { sync(RocAuc(), store, "auc"); });
  EXPECT_TRUE(contains(message, "'auc'")) << message;
}

using Wrong = test::WrongCall;

// Each is on one line, the one that its error must name.
// clang-format off
std::vector<Wrong> wrong_metrics() {
  return {
      Wrong([] { TopK(0); }),
      Wrong([] { ConfusionMatrix(0); }),
      Wrong([] { Precision(0); }),
      Wrong([] { Recall(3, Average::binary); }),
      Wrong([] { MCC(-1); }),
      Wrong([] { Custom none(nullptr); }),
  };
}
// clang-format on

TEST(FurtherMetrics, ErrorsOfConstructorsNameTheLineOfTheProgram) {
  for (const Wrong& wrong : wrong_metrics()) test::expect_named_once(wrong, "further_metrics_test.cc");
}

}  // namespace
}  // namespace mx::metric
