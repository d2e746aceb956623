// The CTC loss: operators/kernels/ctc.h. A block computes one sample, one step after the other, and its
// threads share the states of a step. All is computed in f64.
//
// A length out of range, and a label that is no class or the blank, are noted as errors. The loss of such a
// sample is NaN, and so are its gradients.
#include "operators/ctc.h"

#include "ndarray/cuda/kernel_errors.cuh"
#include "operators/cuda/group.cuh"
#include "operators/cuda/operand.h"
#include "operators/cuda/search.cuh"
#include "operators/cuda_kernels.h"
#include "operators/kernels/bad_values.h"
#include "operators/kernels/ctc_formulas.h"

namespace mx::cuda {
namespace {

using formulas::kNever;
using formulas::log_add;

struct CtcArrays {
  Elements scores;  ///< (steps, batch, classes)
  int64_t step_stride, sample_stride, class_stride;
  int64_t steps, batch, classes;
  const int64_t *targets, *input_lengths, *target_lengths;  ///< contiguous
  int64_t most;                                             ///< labels of a row of targets, or all of them
  bool joined;                                              ///< targets of rank 1
  int64_t blank;
  bool zero_infinity;
  KernelError* bad;
  // Memory for all states of all samples: those of sample i begin at 2 * (its first label) + i.
  int64_t all_states;
  double *alphas, *betas;  ///< (steps, all_states), (2, all_states)
  int64_t* next;           ///< (all_states): the next state with the same label; 0 for none
};

/// The sample that a block works on.
struct CtcSample {
  int64_t sample, first_label, labels, steps, states, begin;
  bool valid;

  __device__ explicit CtcSample(const CtcArrays& a) : sample(blockIdx.x) {
    int64_t before = 0, total = 0;
    for (int64_t i = threadIdx.x; i < a.batch; i += kBlock) {
      const int64_t length = limited(a.target_lengths[i], 0, a.most);
      total += length;
      if (i < sample) before += length;
    }
    before = Group<kBlock>::all(before, Add());
    total = Group<kBlock>::all(total, Add());
    first_label = a.joined ? limited(before, 0, a.most) : sample * a.most;
    const int64_t given_labels = a.target_lengths[sample], given_steps = a.input_lengths[sample];
    labels = limited(given_labels, 0, a.joined ? a.most - first_label : a.most);
    steps = limited(given_steps, 0, a.steps);
    states = 2 * labels + 1;
    begin = 2 * first_label + sample;
    int64_t wrong = labels != given_labels || steps != given_steps || (a.joined && total != a.most) ? 1 : 0;
    if (threadIdx.x == 0) {
      if (steps != given_steps) note_error(a.bad, 2 * sample, given_steps);
      if (given_labels < 0 || given_labels > a.most) note_error(a.bad, 2 * sample + 1, given_labels);
      if (a.joined && total != a.most) note_error(a.bad, 2 * a.batch, total);
    }
    for (int64_t i = threadIdx.x; i < labels; i += kBlock) {
      const int64_t label = a.targets[first_label + i];
      if (label >= 0 && label < a.classes && label != a.blank) continue;
      wrong = 1;
      note_error(a.bad, 2 * a.batch + 1 + sample * a.most + i, label);
    }
    valid = Group<kBlock>::all(wrong, Larger()) == 0;
  }
  /// The states of step t that can have been reached and from which the end can be reached: [first, end).
  __device__ int64_t first_state(int64_t t) const {
    return states - 2 * (steps - t) > 0 ? states - 2 * (steps - t) : 0;
  }
  __device__ int64_t end_state(int64_t t) const { return states < 2 * (t + 1) ? states : 2 * (t + 1); }
  /// The class of a state: blanks around each label.
  __device__ int64_t label(const CtcArrays& a, int64_t s) const {
    return s % 2 == 0 ? a.blank : a.targets[first_label + s / 2];
  }
  __device__ bool skips(const CtcArrays& a, int64_t s) const {
    return s >= 2 && s % 2 == 1 && label(a, s) != label(a, s - 2);
  }
  __device__ double score(const CtcArrays& a, int64_t step, int64_t c) const {
    return load<double>(a.scores, step * a.step_stride + sample * a.sample_stride + c * a.class_stride);
  }
};

/// Computes the logarithms of the probabilities of all paths that are in a state at a step. Returns the loss
/// to all threads.
__device__ inline double ctc_forward(const CtcArrays& a, const CtcSample& c) {
  const int64_t n = c.states;
  if (c.steps == 0) return n == 1 ? 0.0 : -kNever;
  for (int64_t t = 0; t < c.steps; ++t) {
    double* const now = a.alphas + t * a.all_states + c.begin;
    const double* const before = now - a.all_states;
    const int64_t first = c.first_state(t), end = c.end_state(t);
    for (int64_t s = threadIdx.x; s < n; s += kBlock) {
      if (s < first || s >= end) {
        now[s] = kNever;
        continue;
      }
      double sum = 0;
      if (t > 0) {
        const double stay = before[s], step = s >= 1 ? before[s - 1] : kNever;
        sum = c.skips(a, s) ? log_add(stay, step, before[s - 2]) : log_add(stay, step);
      }
      now[s] = sum + c.score(a, t, c.label(a, s));
    }
    barrier();
  }
  const double* const last = a.alphas + (c.steps - 1) * a.all_states + c.begin;
  return -(n > 1 ? log_add(last[n - 1], last[n - 2]) : last[n - 1]);
}

__global__ void __launch_bounds__(kBlock) ctc_losses(CtcArrays a, Elements loss, int64_t loss_step) {
  const CtcSample c(a);
  double value = NAN;
  if (c.valid) {
    value = ctc_forward(a, c);
    if (a.zero_infinity && isinf(value)) value = 0;
  }
  if (threadIdx.x == 0) store(loss, c.sample * loss_step, value);
}

struct CtcGradient {
  Elements data, head;
  int64_t step_stride, sample_stride, class_stride, head_step;
};

__global__ void __launch_bounds__(kBlock) ctc_slopes(CtcArrays a, CtcGradient g) {
  const CtcSample c(a);
  const double loss = c.valid ? ctc_forward(a, c) : NAN, head = load<double>(g.head, c.sample * g.head_step);
  const int64_t n = c.states, place = c.sample * g.sample_stride;
  const bool none = !c.valid || (isinf(loss) && loss > 0);
  // Classes without a state have the gradient 0; samples without a path have one number for all.
  const double rest = none && !(c.valid && a.zero_infinity) ? NAN : 0.0;
  for (int64_t i = threadIdx.x; i < a.steps * a.classes; i += kBlock) {
    const int64_t t = i / a.classes, k = i - t * a.classes;
    store(g.data, t * g.step_stride + place + k * g.class_stride, t < c.steps || !c.valid ? rest : 0.0);
  }
  if (none) return;
  // The states of a label, as a list: 0 behind the last one, and -1 - next for states that are not the first.
  int64_t* const next = a.next + c.begin;
  for (int64_t s = 2 * static_cast<int64_t>(threadIdx.x) + 1; s < n; s += 2 * kBlock) {
    int64_t behind = s + 2, ahead = s - 2;
    while (behind < n && c.label(a, behind) != c.label(a, s)) behind += 2;
    while (ahead > 0 && c.label(a, ahead) != c.label(a, s)) ahead -= 2;
    if (behind >= n) behind = 0;
    next[s] = ahead > 0 ? -1 - behind : behind;
  }
  double *now = a.betas + c.begin, *later = now + a.all_states;
  for (int64_t s = threadIdx.x; s < n; s += kBlock) later[s] = kNever;
  barrier();
  for (int64_t t = c.steps - 1; t >= 0; --t) {
    const int64_t first = c.first_state(t), end = c.end_state(t);
    for (int64_t s = threadIdx.x; s < n; s += kBlock) {
      if (s < first || s >= end) {
        now[s] = kNever;
        continue;
      }
      double sum = 0;
      if (t < c.steps - 1) {
        const double one = later[s], two = s + 1 < n ? later[s + 1] : kNever;
        sum = s + 2 < n && c.skips(a, s + 2) ? log_add(one, two, later[s + 2]) : log_add(one, two);
      }
      now[s] = sum + c.score(a, t, c.label(a, s));
    }
    barrier();
    const double* const alpha = a.alphas + t * a.all_states + c.begin;
    // The probability that the path is in state s. A state of probability 0 has no share; its score is
    // -infinity.
    const auto share = [&](int64_t s, double score) {
      return alpha[s] == kNever || now[s] == kNever ? 0.0 : exp(alpha[s] + now[s] - score + loss);
    };
    const int64_t row = t * g.step_stride + place;
    const double blank_score = c.score(a, t, a.blank);
    double blanks = 0;
    for (int64_t s = 2 * static_cast<int64_t>(threadIdx.x); s < n; s += 2 * kBlock)
      blanks += share(s, blank_score);
    blanks = Group<kBlock>::all(blanks, Add());
    if (threadIdx.x == 0) store(g.data, row + a.blank * g.class_stride, -head * blanks);
    for (int64_t s = 2 * static_cast<int64_t>(threadIdx.x) + 1; s < n; s += 2 * kBlock) {
      if (next[s] < 0) continue;  // the first state with this label adds up the shares
      const int64_t label = c.label(a, s);
      const double score = c.score(a, t, label);
      double sum = 0;
      for (int64_t at = s; at != 0; at = next[at] < 0 ? -1 - next[at] : next[at]) sum += share(at, score);
      store(g.data, row + label * g.class_stride, -head * sum);
    }
    barrier();
    double* const swapped = now;
    now = later;
    later = swapped;
  }
}

/// The places at which CtcSample notes what: the lengths of sample i at 2 i and 2 i + 1, behind all of them
/// the sum of the target lengths, and behind that the labels.
BadValues::Text bad_values(const Tensor& x, const Tensor& targets, int64_t blank) {
  const bool joined = targets.rank() == 1;
  return [steps = x.shape[0], batch = x.shape[1], classes = x.shape[2], most = targets.shape[joined ? 0 : 1],
          blank](const KernelError& e) {
    if (e.place < 2 * batch) {
      const bool input = e.place % 2 == 0;
      return kernels::detail::bad_ctc_length(input ? "input" : "target", input ? steps : most, e.value,
                                             e.place / 2);
    }
    const int64_t label = e.place - 2 * batch - 1;
    if (label < 0) return kernels::detail::bad_ctc_total(e.value, most);
    return kernels::detail::bad_ctc_label(classes, blank, e.value, label % most, label / most);
  };
}

/// The operands with their memory, from input `first` on.
class CtcOperands {
 public:
  CtcOperands(const KernelArgs& args, size_t first, bool backward)
      : targets_(contiguous_operand(args, args.in[first + 1], DType::i64)),
        inputs_(contiguous_operand(args, args.in[first + 2], DType::i64)),
        lengths_(contiguous_operand(args, args.in[first + 3], DType::i64)),
        states_(2 * targets_->numel() + args.in[first].shape[1]),
        memory_(args, static_cast<size_t>(states_ * (args.in[first].shape[0] + (backward ? 3 : 0))) *
                          sizeof(double)),
        bad_(args, bad_values(args.in[first], *targets_, args.attr<CtcAttrs>().blank)) {
    const auto& attrs = args.attr<CtcAttrs>();
    const Tensor& x = args.in[first];
    arrays_.scores = elements_of(x);
    arrays_.step_stride = x.strides[0];
    arrays_.sample_stride = x.strides[1];
    arrays_.class_stride = x.strides[2];
    arrays_.steps = x.shape[0];
    arrays_.batch = x.shape[1];
    arrays_.classes = x.shape[2];
    arrays_.targets = targets_->as<int64_t>();
    arrays_.input_lengths = inputs_->as<int64_t>();
    arrays_.target_lengths = lengths_->as<int64_t>();
    arrays_.joined = targets_->rank() == 1;
    arrays_.most = targets_->shape[arrays_.joined ? 0 : 1];
    arrays_.blank = attrs.blank;
    arrays_.zero_infinity = attrs.zero_infinity;
    arrays_.all_states = states_;
    arrays_.alphas = memory_.as<double>();
    arrays_.betas = arrays_.alphas + arrays_.steps * states_;
    arrays_.next = reinterpret_cast<int64_t*>(arrays_.betas + 2 * states_);
    arrays_.bad = bad_.word();
  }
  const CtcArrays& arrays() const { return arrays_; }
  void check() const { bad_.check(); }

 private:
  Operand targets_, inputs_, lengths_;
  int64_t states_;
  Scratch memory_;
  BadValues bad_;
  CtcArrays arrays_{};
};

/// Throws InvalidArgument for joined labels without a sample. The operands begin at input `first`.
void check_no_labels(const KernelArgs& args, size_t first) {
  const Tensor &x = args.in[first], &targets = args.in[first + 1];
  if (x.shape[1] == 0 && targets.rank() == 1 && targets.shape[0] > 0)
    throw InvalidArgument(kernels::detail::bad_ctc_total(0, targets.shape[0]));
}

}  // namespace

void ctc_loss(const KernelArgs& args) {
  const Tensor& loss = args.out[0];
  check_no_labels(args, 0);
  if (loss.numel() == 0) return;
  const CtcOperands operands(args, 0, false);
  launch(stream_of(args), whole_grid(loss.numel()), kBlock, 0, ctc_losses, operands.arrays(),
         elements_of(loss), loss.strides[0]);
  operands.check();
}

void ctc_loss_backward(const KernelArgs& args) {
  const Tensor &head = args.in[0], &dx = args.out[0];
  check_no_labels(args, 1);
  if (dx.shape[1] == 0) return;
  const CtcOperands operands(args, 1, true);
  const CtcGradient gradient{elements_of(dx), elements_of(head), dx.strides[0],
                             dx.strides[1],   dx.strides[2],     head.strides[0]};
  launch(stream_of(args), whole_grid(dx.shape[1]), kBlock, 0, ctc_slopes, operands.arrays(), gradient);
  operands.check();
}

}  // namespace mx::cuda
