// CTC: the sum over all alignments, one by one, in float64; gradients, infinite losses, lengths and errors.
#include "operators/ctc.h"

#include <map>

#include "operators/operators.h"
#include "operators/softmax.h"
#include "tests/operators/gradient_support.h"
#include "tests/operators/values.h"
#include "tests/support/errors.h"
#include "tests/support/instruction_sets.h"
#include "tests/support/thread_limit.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;
using test::kInfinity;
using test::numbers;
using test::Values;

/// Returns the loss of one sample from the probabilities of all classes^steps paths. scores: by step, then
/// class.
double loss_of_all_paths(const Values& scores, int64_t steps, int64_t classes,
                         const std::vector<int64_t>& labels, int64_t blank) {
  double total = 0;
  std::vector<int64_t> path(static_cast<size_t>(steps), 0);
  for (;;) {
    std::vector<int64_t> spelled;
    double score = 0;
    for (size_t t = 0; t < path.size(); ++t) {
      score += scores[t * static_cast<size_t>(classes) + static_cast<size_t>(path[t])];
      if (path[t] != blank && (t == 0 || path[t] != path[t - 1])) spelled.push_back(path[t]);
    }
    if (spelled == labels) total += std::exp(score);
    size_t t = 0;
    for (; t < path.size() && ++path[t] == classes; ++t) path[t] = 0;
    if (t == path.size()) break;
  }
  return -std::log(total);
}

struct CtcCase {
  int64_t steps, classes, blank;
  std::vector<std::vector<int64_t>> labels;
  std::vector<int64_t> inputs;
};

std::vector<CtcCase> ctc_cases() {
  return {{5, 3, 0, {{1, 2}, {1, 1}, {}, {2}, {1, 2, 1}, {2, 2, 2}}, {5, 4, 3, 1, 3, 5}},
          {4, 4, 3, {{0, 1, 2}, {2}, {0, 0}}, {4, 0, 2}},
          {6, 2, 1, {{0, 0, 0}, {0}, {}}, {6, 6, 0}},
          {1, 2, 0, {{1}, {}}, {1, 1}}};
}

struct CtcInputs {
  NDArray scores, joined, padded, inputs, targets;
  Values losses;
};

CtcInputs make(const CtcCase& c, DType type = f64) {
  const auto batch = static_cast<int64_t>(c.labels.size());
  CtcInputs in;
  in.scores = log_softmax(numbers({c.steps, batch, c.classes}, f64, 3), 2).to(type);
  std::vector<int64_t> all, padded, lengths;
  size_t most = 1;
  for (const auto& labels : c.labels) most = std::max(most, labels.size());
  const Values scores = test::values(in.scores);
  for (size_t i = 0; i < c.labels.size(); ++i) {
    all.insert(all.end(), c.labels[i].begin(), c.labels[i].end());
    padded.insert(padded.end(), c.labels[i].begin(), c.labels[i].end());
    padded.resize((i + 1) * most, -7);  // what is after the end is not read
    lengths.push_back(static_cast<int64_t>(c.labels[i].size()));
    Values own;
    for (int64_t t = 0; t < c.inputs[i]; ++t)
      for (int64_t k = 0; k < c.classes; ++k)
        own.push_back(scores[static_cast<size_t>((t * batch + static_cast<int64_t>(i)) * c.classes + k)]);
    in.losses.push_back(loss_of_all_paths(own, c.inputs[i], c.classes, c.labels[i], c.blank));
  }
  in.joined = from_data(all.data(), {static_cast<int64_t>(all.size())});
  in.padded = from_data(padded.data(), {batch, static_cast<int64_t>(most)});
  in.inputs = from_data(c.inputs.data(), {batch});
  in.targets = from_data(lengths.data(), {batch});
  return in;
}

TEST(CtcLoss, IsTheSumOverAllAlignments) {
  for (const CtcCase& c : ctc_cases())
    for (const DType type : {f64, f32, f16}) {
      const CtcInputs in = make(c, type);
      const CtcOptions options{.blank = c.blank, .reduction = "none"};
      test::expect_values(in.losses, ctc_loss(in.scores, in.padded, in.inputs, in.targets, options),
                          "padded");
      test::expect_values(in.losses, ctc_loss(in.scores, in.joined, in.inputs, in.targets, options),
                          "joined");
      test::expect_values(
          in.losses, ctc_loss(in.scores, in.joined.to(i32), in.inputs.to(i32), in.targets, options), "i32");
      const NDArray strided = in.scores.transpose().clone().transpose();
      test::expect_values(in.losses, ctc_loss(strided, in.padded, in.inputs, in.targets, options), "strided");
    }
}

TEST(CtcLoss, ReductionsAreThoseOfPyTorch) {
  const CtcCase c = {5, 3, 0, {{1, 2}, {1, 1}, {}, {2}}, {5, 4, 3, 1}};
  const CtcInputs in = make(c);
  double sum = 0, mean = 0;
  for (size_t i = 0; i < in.losses.size(); ++i) {
    sum += in.losses[i];
    mean += in.losses[i] / std::max<double>(1, static_cast<double>(c.labels[i].size())) / 4;
  }
  test::expect_values({sum}, ctc_loss(in.scores, in.padded, in.inputs, in.targets, {.reduction = "sum"}),
                      "sum");
  test::expect_values({mean}, ctc_loss(in.scores, in.padded, in.inputs, in.targets), "mean");
  const NDArray one = ctc_loss(in.scores.select(1, 0), in.padded[0], array<int64_t>({5})[0],
                               array<int64_t>({2})[0], {.reduction = "none"});
  EXPECT_EQ(Shape{}, one.shape());
  test::expect_values({in.losses[0]}, one, "one sample");
}

// Each score is a variable of its own.
TEST(CtcLoss, GradientsAgreeWithFiniteDifferences) {
  for (const CtcCase& c : ctc_cases()) {
    CtcInputs in = make(c);
    const Operator& op = *find_operator("ctc_loss");
    test::expect_gradients(op,
                           {{in.scores, in.padded, in.inputs, in.targets}, CtcAttrs{c.blank, true}, "case"});
  }
}

TEST(CtcLoss, AnInputThatIsTooShortHasAnInfiniteLoss) {
  const NDArray scores = log_softmax(numbers({3, 2, 3}, f64, 1), 2),
                labels = array<int64_t>({{1, 1}, {1, 2}}), inputs = array<int64_t>({2, 3}),
                lengths = array<int64_t>({2, 2});
  const auto gradient = [&](bool zero) {
    const Operator& op = *find_operator("ctc_loss_backward");
    const NDArray in[] = {ones({2}, f64), scores, labels, inputs, lengths};
    return call(op, CtcAttrs{0, zero}, in)[0];
  };
  const NDArray loss = ctc_loss(scores, labels, inputs, lengths, {.reduction = "none"});
  EXPECT_EQ(kInfinity, loss[0].item<double>());
  EXPECT_TRUE(std::isfinite(loss[1].item<double>()));
  const NDArray zeroed =
      ctc_loss(scores, labels, inputs, lengths, {.reduction = "none", .zero_infinity = true});
  EXPECT_EQ(0, zeroed[0].item<double>());
  EXPECT_EQ(loss[1].item<double>(), zeroed[1].item<double>());
  const Values nan = test::values(gradient(false).select(1, 0)),
               none = test::values(gradient(true).select(1, 0));
  for (size_t i = 0; i < nan.size(); ++i) {
    EXPECT_EQ(i < 6, std::isnan(nan[i])) << "only the steps that the sample has: " << i;
    EXPECT_EQ(0, none[i]);
  }
  EXPECT_EQ(test::values(gradient(false).select(1, 1)), test::values(gradient(true).select(1, 1)));
}

// Far more alignments than a double can count.
/// The loss of one sample by the recurrence over states. scores: by step, then class; the blank is class 0.
double loss_by_recurrence(const Values& scores, int64_t steps, int64_t classes, const Values& labels) {
  std::vector<size_t> states = {0};
  for (const double label : labels) {
    states.push_back(static_cast<size_t>(label));
    states.push_back(0);
  }
  const auto sum = [](double a, double b) {
    return a == -kInfinity && b == -kInfinity ? a : std::max(a, b) + std::log1p(std::exp(-std::abs(a - b)));
  };
  Values now(states.size(), -kInfinity);
  for (int64_t t = 0; t < steps; ++t) {
    Values next(states.size(), -kInfinity);
    for (size_t s = 0; s < states.size(); ++s) {
      double before = t == 0 && s < 2 ? 0 : now[s];
      if (t > 0 && s > 0) before = sum(before, now[s - 1]);
      if (t > 0 && s > 1 && states[s] != 0 && states[s] != states[s - 2]) before = sum(before, now[s - 2]);
      next[s] = before + scores[static_cast<size_t>(t * classes) + states[s]];
    }
    now = next;
  }
  return -sum(now[states.size() - 1], now[states.size() - 2]);
}

// States beside the sizes of vectors. Some scores are so low that they are no part of any sum, or impossible.
TEST(CtcLoss, IsThatOfTheRecurrenceWithEveryInstructionSet) {
  int possible = 0;
  for (const int64_t most : {1, 3, 4, 7, 12, 30}) {
    const int64_t steps = 2 * most + 5, classes = 5;
    NDArray scores = log_softmax(numbers({steps, 1, classes}, f64, 7) * 20, 2);
    scores = where(numbers({steps, 1, classes}, f64, 8) > 1.8, -2000, scores);
    scores = where(numbers({steps, 1, classes}, f64, 9) > 2.2, -kInfinity, scores);
    const NDArray labels = abs(numbers({1, most}, i64, 10)) % 4 + 1;
    const NDArray lengths = array<int64_t>({steps}), targets = array<int64_t>({most});
    const double want = loss_by_recurrence(test::values(scores), steps, classes, test::values(labels));
    const Operator& backward = *find_operator("ctc_loss_backward");
    possible += std::isfinite(want) ? 1 : 0;
    Values first;
    test::with_every_instruction_set([&](int64_t) {
      test::expect_values({want}, ctc_loss(scores, labels, lengths, targets, {.reduction = "sum"}),
                          std::to_string(most));
      const std::vector<NDArray> inputs = {ones({1}, f64), scores, labels, lengths, targets};
      const NDArray slopes = call(backward, CtcAttrs{}, inputs)[0];
      if (first.empty()) first = test::values(slopes);
      test::expect_values(first, slopes, std::to_string(most), 10);
      // At each step the path is in some state.
      if (std::isfinite(want))
        test::expect_values(Values(static_cast<size_t>(steps), -1), sum(slopes, {1, 2}), "steps", 100);
    });
  }
  EXPECT_GE(possible, 4);
}

TEST(CtcLoss, LongSequencesStayInRange) {
  const int64_t steps = 700, classes = 5;
  const NDArray scores = full({steps, 1, classes}, -std::log(5.), f64);
  const NDArray labels = (arange(200) % 4 + 1).reshape({1, 200});
  const NDArray loss =
      ctc_loss(scores, labels, array<int64_t>({steps}), array<int64_t>({200}), {.reduction = "none"});
  // No label repeats, so the alignments are chosen by 2 * 200 of steps + 200 places.
  const double ways = std::lgamma(901.) - std::lgamma(401.) - std::lgamma(501.);
  EXPECT_NEAR(700 * std::log(5.) - ways, loss[0].item<double>(), 1e-8);
}

TEST(CtcLoss, TheNumberOfThreadsDoesNotChangeABit) {
  const NDArray scores = log_softmax(numbers({40, 9, 6}, f32, 1), 2),
                labels = arange(9 * 7).reshape({9, 7}) % 5 + 1, inputs = full({9}, 40, i64),
                lengths = arange(9) % 7;
  const auto run = [&] {
    const NDArray in[] = {ones({9}), scores, labels, inputs, lengths};
    return std::pair(test::content_of(ctc_loss(scores, labels, inputs, lengths)),
                     test::content_of(call(*find_operator("ctc_loss_backward"), CtcAttrs{}, in)[0]));
  };
  std::pair<test::Content, test::Content> one, four;
  test::with_threads(1, [&] { one = run(); });
  test::with_threads(4, [&] { four = run(); });
  EXPECT_TRUE(one == four);
}

TEST(CtcLoss, ErrorsNameWhatCame) {
  const NDArray scores = log_softmax(zeros({3, 2, 4}), 2), labels = array<int64_t>({{1, 2}, {3, 1}}),
                lengths = array<int64_t>({2, 2}), inputs = array<int64_t>({3, 3});
  const auto message = [](const auto& f) { return error_of<InvalidArgument>(f); };
  const auto waits = [&](const NDArray& targets, const NDArray& input, const NDArray& length) {
    return message([&] { ctc_loss(scores, targets, input, length).wait(); });
  };
  EXPECT_TRUE(
      contains(waits(array<int64_t>({{1, 2}, {3, 4}}), inputs, lengths), "got 4 as label 1 of sample 1"));
  EXPECT_TRUE(
      contains(waits(array<int64_t>({{1, 2}, {3, 0}}), inputs, lengths), "other than the blank 0, got 0"));
  EXPECT_TRUE(contains(waits(labels, array<int64_t>({3, 4}), lengths), "input lengths from 0 to 3, got 4"));
  EXPECT_TRUE(contains(waits(labels, inputs, array<int64_t>({3, 2})), "target lengths from 0 to 2, got 3"));
  EXPECT_TRUE(contains(waits(labels, inputs, array<int64_t>({-1, 2})), "got -1"));
  EXPECT_TRUE(
      contains(waits(array<int64_t>({1, 2, 3}), inputs, lengths), "the sum of the target lengths, 4, got 3"));
  EXPECT_TRUE(contains(message([&] { ctc_loss(scores, labels, inputs, lengths, {.blank = 4}); }), "got 4"));
  EXPECT_TRUE(
      contains(message([&] { ctc_loss(scores, labels, inputs, lengths, {.reduction = "max"}); }), "\"max\""));
  EXPECT_TRUE(contains(message([&] {
                         ctc_loss(scores, labels, inputs[{Slice{0, 1}}], lengths);
                       }),
                       "shape (1,)"));
  EXPECT_TRUE(contains(message([&] { ctc_loss(scores, labels.to(f32), inputs, lengths); }), "got f32"));
  EXPECT_TRUE(
      contains(message([&] { ctc_loss(zeros({3}), labels, inputs, lengths); }), "(steps, batch, classes)"));
}

}  // namespace
}  // namespace mx
