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
    // The scores of the classes at one step.
    row_.resize(static_cast<size_t>(classes));
  }

  int64_t states() const { return static_cast<int64_t>(states_.size()); }
  int64_t label(int64_t s) const { return states_[static_cast<size_t>(s)]; }
  /// Returns true if state s may follow state s - 2: it is a label, and not the same one.
  bool skips(int64_t s) const { return s >= 2 && label(s) != args_.blank && label(s) != label(s - 2); }
  const std::vector<double>& scores(int64_t step) {
    const Tensor& x = args_.log_probs;
    load_run(row_.data(), x.data, x.dtype, step * x.strides[0] + sample_ * x.strides[1], x.strides[2],
             x.shape[2]);
    return row_;
  }

  /// The logarithm of the probability of all paths that are in a state at a step; `alphas` gets those of all
  /// steps, one row after the other. Returns the loss.
  double forward(std::vector<double>& alphas) {
    const int64_t n = states();
    alphas.assign(static_cast<size_t>(std::max<int64_t>(1, steps) * n), kNever);
    if (steps == 0) return n == 1 ? 0 : -kNever;
    const auto at = [&](int64_t t, int64_t s) -> double& { return alphas[static_cast<size_t>(t * n + s)]; };
    for (int64_t t = 0; t < steps; ++t) {
      const std::vector<double>& score = scores(t);
      // States from which the end cannot be reached any more, and those that cannot have been reached yet.
      const int64_t first = std::max<int64_t>(0, n - 2 * (steps - t)), end = std::min(n, 2 * (t + 1));
      for (int64_t s = first; s < end; ++s) {
        double sum = 0;
        if (t > 0) {
          const double stay = at(t - 1, s), step = s >= 1 ? at(t - 1, s - 1) : kNever;
          sum = skips(s) ? log_add(stay, step, at(t - 1, s - 2)) : log_add(stay, step);
        }
        at(t, s) = sum + score[static_cast<size_t>(label(s))];
      }
    }
    return -(n > 1 ? log_add(at(steps - 1, n - 1), at(steps - 1, n - 2)) : at(steps - 1, n - 1));
  }

  /// Calls f(step, s, beta): the logarithm of the probability of all paths that are in state s at the step,
  /// from that step on.
  template <class F>
  void backward(const F& f) {
    const int64_t n = states();
    std::vector<double> next(static_cast<size_t>(n), kNever), now = next;
    const auto later = [&](int64_t s) { return s < n ? next[static_cast<size_t>(s)] : kNever; };
    for (int64_t t = steps - 1; t >= 0; --t) {
      const std::vector<double>& score = scores(t);
      std::fill(now.begin(), now.end(), kNever);
      const int64_t first = std::max<int64_t>(0, n - 2 * (steps - t)), end = std::min(n, 2 * (t + 1));
      for (int64_t s = first; s < end; ++s) {
        double sum = 0;
        if (t < steps - 1)
          sum = s + 2 < n && skips(s + 2) ? log_add(later(s), later(s + 1), later(s + 2))
                                          : log_add(later(s), later(s + 1));
        now[static_cast<size_t>(s)] = sum + score[static_cast<size_t>(label(s))];
      }
      for (int64_t s = first; s < end; ++s) f(t, s, now[static_cast<size_t>(s)], score);
      std::swap(now, next);
    }
  }

 private:
  const CtcArgs& args_;
  const int64_t sample_;
  std::vector<int64_t> states_;
  std::vector<double> row_;

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
      int64_t current = sequence.steps;
      sequence.backward([&](int64_t t, int64_t s, double beta, const std::vector<double>& score) {
        if (t != current) {
          if (current < sequence.steps) store(current);
          std::fill(row.begin(), row.end(), 0.);
          current = t;
        }
        const double alpha = alphas[static_cast<size_t>(t * sequence.states() + s)];
        const auto c = static_cast<size_t>(sequence.label(s));
        // A state of probability 0 has no share; its score is -infinity.
        if (alpha != kNever && beta != kNever) row[c] -= head * std::exp(alpha + beta - score[c] + loss);
      });
      if (current < sequence.steps) store(current);
    }
  });
}

}  // namespace mx::kernels
