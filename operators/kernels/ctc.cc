#include "operators/kernels/ctc.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/kernels/parallel.h"
#include "ndarray/scalar.h"
#include "operators/kernels/bad_values.h"
#include "operators/kernels/ctc_formulas.h"
#include "operators/kernels/ctc_rows.h"
#include "operators/kernels/row_convert.h"

namespace mx::kernels {
namespace {

using formulas::kNever;
using formulas::log_add;

int64_t integer_at(const Tensor& t, int64_t i) { return t.as<int64_t>()[i * t.strides[0]]; }

double float_at(const Tensor& t, int64_t i) {
  double value = 0;
  load_run(&value, t.data, t.dtype, i * t.strides[0], 1, 1);
  return value;
}

/// One sample: its labels with blanks around each of them, and its scores.
///
/// The variables of a step are logarithms for all states, with two of the probability 0 on either side of
/// them (kEdge), so that those of the states before and after are read without a condition.
class Sequence {
 public:
  Sequence(const CtcArgs& args, int64_t sample, int64_t first_label)
      : args_(args), sample_(sample), steps(integer_at(args.input_lengths, sample)) {
    const int64_t labels = integer_at(args.target_lengths, sample), classes = args.log_probs.shape[2];
    states_.reserve(static_cast<size_t>(2 * labels + 1));
    states_.push_back(args.blank);
    for (int64_t i = 0; i < labels; ++i) {
      const int64_t label =
          args.targets.rank() == 1
              ? integer_at(args.targets, first_label + i)
              : args.targets.as<int64_t>()[sample * args.targets.strides[0] + i * args.targets.strides[1]];
      if (label < 0 || label >= classes || label == args.blank)
        throw InvalidArgument(detail::bad_ctc_label(classes, args.blank, label, i, sample));
      states_.push_back(label);
      states_.push_back(args.blank);
    }
    row_.resize(static_cast<size_t>(classes));
    state_scores_.resize(states_.size());
    may_skip_.resize(states_.size() + kEdge, kNever);
    for (int64_t s = 3; s < states(); s += 2)
      if (label(s) != label(s - 2)) may_skip_[static_cast<size_t>(s)] = 0;
  }

  static constexpr int64_t kEdge = 2;

  int64_t states() const { return static_cast<int64_t>(states_.size()); }
  int64_t label(int64_t s) const { return states_[static_cast<size_t>(s)]; }
  /// Numbers of a step's variables in memory.
  int64_t pitch() const { return states() + 2 * kEdge; }

  /// The logarithm of the probability of all paths that are in a state at a step; `alphas` gets those of all
  /// steps, pitch() for each, from state -kEdge on. Returns the loss.
  double forward(std::vector<double>& alphas) {
    const int64_t n = states();
    alphas.assign(static_cast<size_t>(std::max<int64_t>(1, steps) * pitch()), kNever);
    if (steps == 0) return n == 1 ? 0 : -kNever;
    for (int64_t t = 0; t < steps; ++t) {
      const auto [first, end] = reachable(t);
      const double* const score = scores(t) + first;
      double* const now = alphas.data() + t * pitch() + kEdge + first;
      const double* const before = now - pitch();
      if (t == 0)
        std::copy(score, score + (end - first), now);
      else
        detail::ctc_next_states({before, before - 1, before - 2, may_skip_.data() + first, score, now},
                                end - first);
    }
    const double* const last = alphas.data() + (steps - 1) * pitch() + kEdge;
    return -(n > 1 ? log_add(last[n - 1], last[n - 2]) : last[n - 1]);
  }

  /// Calls f(step, shares, first, end): the probabilities that the path is in the states from `first` to
  /// end - 1 at the step, and 0 elsewhere. `alphas` are those of forward(), which has returned `loss`.
  template <class F>
  void backward(const std::vector<double>& alphas, double loss, const F& f) {
    // As alphas: the logarithm of the probability of all paths that are in a state, from that step on.
    std::vector<double> next(static_cast<size_t>(pitch()), kNever), now = next;
    std::vector<double> shares(states_.size());
    for (int64_t t = steps - 1; t >= 0; --t) {
      const auto [first, end] = reachable(t);
      const double* const score = scores(t) + first;
      std::fill(now.begin(), now.end(), kNever);
      double* const beta = now.data() + kEdge + first;
      const double* const later = next.data() + kEdge + first;
      if (t == steps - 1)
        std::copy(score, score + (end - first), beta);
      else
        detail::ctc_next_states({later, later + 1, later + 2, may_skip_.data() + first + 2, score, beta},
                                end - first);
      detail::ctc_shares(alphas.data() + t * pitch() + kEdge + first, beta, score, loss, shares.data(),
                         end - first);
      f(t, shares.data(), first, end);
      std::swap(now, next);
    }
  }

 private:
  struct Range {
    int64_t first, end;
  };
  /// The states but those from which the end cannot be reached any more, and those that cannot have been
  /// reached yet.
  Range reachable(int64_t t) const {
    const int64_t first = std::max<int64_t>(0, states() - 2 * (steps - t));
    return {first, std::max(first, std::min(states(), 2 * (t + 1)))};
  }
  /// The scores of all states at a step.
  const double* scores(int64_t step) {
    const Tensor& x = args_.log_probs;
    load_run(row_.data(), x.data, x.dtype, step * x.strides[0] + sample_ * x.strides[1], x.strides[2],
             x.shape[2]);
    for (size_t s = 0; s < states_.size(); ++s) state_scores_[s] = row_[static_cast<size_t>(states_[s])];
    return state_scores_.data();
  }

  const CtcArgs& args_;
  const int64_t sample_;
  std::vector<int64_t> states_;
  std::vector<double> row_, state_scores_;  // scores of the classes and of the states at one step
  std::vector<double>
      may_skip_;  // 0 if a state may follow the one two before it: another label; else -infinity

 public:
  const int64_t steps;
};

/// Checks the lengths; returns where the labels of each sample begin in targets of rank 1.
std::vector<int64_t> first_labels(const CtcArgs& args) {
  const int64_t batch = args.log_probs.shape[1], steps = args.log_probs.shape[0];
  const bool joined = args.targets.rank() == 1;
  const int64_t most = args.targets.shape[joined ? 0 : 1];
  std::vector<int64_t> first;
  int64_t total = 0;
  for (int64_t i = 0; i < batch; ++i) {
    const int64_t input = integer_at(args.input_lengths, i), target = integer_at(args.target_lengths, i);
    if (input < 0 || input > steps) throw InvalidArgument(detail::bad_ctc_length("input", steps, input, i));
    if (target < 0 || target > most) throw InvalidArgument(detail::bad_ctc_length("target", most, target, i));
    first.push_back(total);
    total += target;
  }
  if (joined && total != most) throw InvalidArgument(detail::bad_ctc_total(total, most));
  return first;
}

}  // namespace

void ctc_loss(const Tensor& loss, const CtcArgs& args) {
  const std::vector<int64_t> first = first_labels(args);
  parallel_for(args.log_probs.shape[1], 1, [&](int64_t begin, int64_t end) {
    std::vector<double> alphas;
    for (int64_t i = begin; i < end; ++i) {
      double value = Sequence(args, i, first[static_cast<size_t>(i)]).forward(alphas);
      if (args.zero_infinity && std::isinf(value)) value = 0;
      store_run(loss.data, loss.dtype, i * loss.strides[0], 1, &value, 1);
    }
  });
}

void ctc_loss_backward(const Tensor& dlog_probs, const Tensor& dloss, const CtcArgs& args) {
  const std::vector<int64_t> first = first_labels(args);
  const int64_t steps = args.log_probs.shape[0], classes = args.log_probs.shape[2];
  parallel_for(args.log_probs.shape[1], 1, [&](int64_t begin, int64_t end) {
    std::vector<double> alphas, row(static_cast<size_t>(classes));
    for (int64_t i = begin; i < end; ++i) {
      const auto store = [&](int64_t t) {
        store_run(dlog_probs.data, dlog_probs.dtype, t * dlog_probs.strides[0] + i * dlog_probs.strides[1],
                  dlog_probs.strides[2], row.data(), classes);
      };
      Sequence sequence(args, i, first[static_cast<size_t>(i)]);
      const double loss = sequence.forward(alphas), head = float_at(dloss, i);
      const bool none = std::isinf(loss) && loss > 0;
      std::fill(row.begin(), row.end(), 0.);
      for (int64_t t = sequence.steps; t < steps; ++t) store(t);
      if (none) {
        if (!args.zero_infinity) std::fill(row.begin(), row.end(), std::nan(""));
        for (int64_t t = 0; t < sequence.steps; ++t) store(t);
        continue;
      }
      // The share of each class at a step: the probability that the path is in one of its states.
      const auto blank = static_cast<size_t>(args.blank);
      sequence.backward(alphas, loss, [&](int64_t t, const double* shares, int64_t from, int64_t to) {
        std::fill(row.begin(), row.end(), 0.);
        double blanks = 0;  // every other state is one
        for (int64_t s = from; s < to; ++s) {
          const double share = head * shares[s - from];
          if (s % 2 == 0)
            blanks -= share;
          else
            row[static_cast<size_t>(sequence.label(s))] -= share;
        }
        row[blank] = blanks;
        store(t);
      });
    }
  });
}

}  // namespace mx::kernels
