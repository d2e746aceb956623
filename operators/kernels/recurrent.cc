#include "operators/kernels/recurrent.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "ndarray/kernels/copy.h"
#include "ndarray/kernels/parallel.h"
#include "operators/kernels/recurrent_steps.h"
#include "operators/scratch.h"
#include "operators/temporary.h"

namespace mx::kernels {

SequencePlan::SequencePlan(int64_t steps, int64_t batch) {
  for (int64_t t = 0; t <= steps; ++t) first_.push_back(t * batch);
}

SequencePlan::SequencePlan(const std::vector<int64_t>& sizes) : first_{0} {
  for (const int64_t size : sizes) first_.push_back(first_.back() + size);
}

namespace {

// Fewer samples in a block would spend more time with reading the weights than with arithmetic; the
// activations of more would leave the second-level cache.
constexpr int64_t kLeastSamples = 4, kMostSamples = 128;

/// The elements of an operand, contiguous and of type T: where they are, or copied.
template <class T>
class Contiguous {
 public:
  explicit Contiguous(const Tensor* operand) {
    if (operand == nullptr) return;
    data_ = operand->as<T>();
    if (operand->dtype == dtype_of<T> && operand->contiguous()) return;
    copy_.emplace(dtype_of<T>, operand->shape);
    copy(**copy_, *operand);
    data_ = (**copy_).template as<T>();
  }
  const T* data() const { return data_; }

 private:
  std::optional<mx::detail::Temporary> copy_;
  const T* data_ = nullptr;
};

/// A result, which store() writes if it is not computed in its own memory.
template <class T>
class ContiguousResult {
 public:
  explicit ContiguousResult(const Tensor* result) : result_(result) {
    if (result == nullptr) return;
    data_ = result->as<T>();
    if (result->dtype == dtype_of<T> && result->contiguous()) return;
    computed_.emplace(dtype_of<T>, result->shape);
    data_ = (**computed_).template as<T>();
  }
  T* data() const { return data_; }
  void store() const {
    if (computed_) copy(*result_, **computed_);
  }

 private:
  const Tensor* result_;
  std::optional<mx::detail::Temporary> computed_;
  T* data_ = nullptr;
};

/// Calls body(begin, end) for blocks of samples. The size of the blocks may follow the number of threads,
/// because a sample's bits do not depend on its block.
template <class Body>
void for_blocks(int64_t batch, const Body& body) {
  const int64_t width = parallel_width();
  const int64_t share = (batch + width - 1) / width;
  const int64_t blocks = (share + kMostSamples - 1) / kMostSamples;  // of a thread
  parallel_for(batch, std::max(kLeastSamples, blocks == 0 ? 0 : (share + blocks - 1) / blocks), body);
}

template <class T>
void run_forward(const KernelArgs& args, const RecurrentSequence& sequence, const Tensor& x,
                 const Tensor& weights, const Tensor& h0, const Tensor* c0, const Tensor* bias,
                 const Tensor& y, const Tensor* cells, const Tensor* activations) {
  const int gates = gates_of(sequence.cell);
  const int64_t hidden = weights.shape[1];
  const Contiguous<T> from(&x), w(&weights), h(&h0), c(c0), b(bias);
  const ContiguousResult<T> to(&y), kept_cells(cells), kept_activations(activations);
  const Scratch packed(args, detail::packed_forward_size<T>(gates, hidden) * sizeof(T));
  detail::pack_forward<T>(packed.as<T>(), w.data(), gates, hidden);
  const detail::ForwardSteps<T> steps{
      sequence, hidden,   from.data(), packed.as<T>(),    b.data(),
      h.data(), c.data(), to.data(),   kept_cells.data(), kept_activations.data()};
  for_blocks(sequence.plan.batch(),
             [&](int64_t begin, int64_t end) { detail::forward_steps<T>(steps, begin, end); });
  to.store();
  kept_cells.store();
  kept_activations.store();
}

template <class T>
void run_backward(const KernelArgs& args, const RecurrentSequence& sequence, const RecurrentGradient& g) {
  const int gates = gates_of(sequence.cell);
  const int64_t hidden = g.weights->shape[1];
  const Contiguous<T> dy(g.dy), w(g.weights), y(g.y), cells(g.cells), activations(g.activations), h0(g.h0),
      c0(g.c0), dcells(g.dcells);
  const ContiguousResult<T> dx(g.dx), dproduct(g.dproduct), dh0(g.dh0), dc0(g.dc0);
  const Scratch packed(args, detail::packed_backward_size<T>(gates, hidden) * sizeof(T));
  detail::pack_backward<T>(packed.as<T>(), w.data(), gates, hidden);
  const detail::BackwardSteps<T> steps{
      sequence,  hidden,    packed.as<T>(), dy.data(), y.data(),        cells.data(), activations.data(),
      h0.data(), c0.data(), dcells.data(),  dx.data(), dproduct.data(), dh0.data(),   dc0.data()};
  for_blocks(sequence.plan.batch(),
             [&](int64_t begin, int64_t end) { detail::backward_steps<T>(steps, begin, end); });
  for (const ContiguousResult<T>* result : {&dx, &dproduct, &dh0, &dc0}) result->store();
}

}  // namespace

void recurrent(const KernelArgs& args, const RecurrentSequence& sequence, const Tensor& x,
               const Tensor& weights, const Tensor& h0, const Tensor* c0, const Tensor* bias, const Tensor& y,
               const Tensor* cells, const Tensor* activations) {
  if (weights.dtype == f64)
    run_forward<double>(args, sequence, x, weights, h0, c0, bias, y, cells, activations);
  else
    run_forward<float>(args, sequence, x, weights, h0, c0, bias, y, cells, activations);
}

void recurrent_backward(const KernelArgs& args, const RecurrentSequence& sequence,
                        const RecurrentGradient& gradient) {
  if (gradient.weights->dtype == f64)
    run_backward<double>(args, sequence, gradient);
  else
    run_backward<float>(args, sequence, gradient);
}

}  // namespace mx::kernels
