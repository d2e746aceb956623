#include "operators/kernels/recurrent.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "ndarray/kernels/copy.h"
#include "ndarray/kernels/parallel.h"
#include "operators/kernels/gemm.h"
#include "operators/kernels/recurrent_steps.h"
#include "operators/matmul_plan.h"
#include "operators/scratch.h"
#include "operators/temporary.h"

namespace mx::kernels {

SequencePlan::SequencePlan(int64_t steps, int64_t batch) {
  for (int64_t t = 0; t <= steps; ++t) first_.push_back(t * batch);
}

SequencePlan::SequencePlan(const std::vector<int64_t>& sizes) : first_{0} {
  for (const int64_t size : sizes) first_.push_back(first_.back() + size);
}

std::vector<StepGroup> groups_of_steps(const SequencePlan& plan, bool reverse, int64_t most_rows) {
  std::vector<StepGroup> groups;
  for (int64_t begin = 0; begin < plan.steps();) {
    int64_t end = begin, rows = 0;
    while (end < plan.steps()) {
      const int64_t more = plan.size(reverse ? plan.steps() - 1 - end : end);
      if (end > begin && rows + more > most_rows) break;
      rows += more;
      ++end;
    }
    const int64_t first = reverse ? plan.steps() - end : begin;
    groups.push_back({begin, end, first, plan.first(first), rows});
    begin = end;
  }
  return groups;
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
  const detail::ForwardSteps<T> steps{sequence,
                                      hidden,
                                      from.data(),
                                      packed.as<T>(),
                                      b.data(),
                                      h.data(),
                                      c.data(),
                                      to.data(),
                                      kept_cells.data(),
                                      kept_activations.data(),
                                      0,
                                      sequence.plan.steps(),
                                      0,
                                      nullptr,
                                      nullptr};
  for_blocks(sequence.plan.batch(),
             [&](int64_t begin, int64_t end) { detail::forward_steps<T>(steps, begin, end); });
  to.store();
  kept_cells.store();
  kept_activations.store();
}

/// Bytes of the products of the inputs that are computed at a time, unless one step needs more. They stay in
/// the second-level cache until the steps read them.
constexpr int64_t kProductBytes = 512 * 1024;

/// Memory from the device's pool, as a contiguous tensor.
class ScratchTensor {
 public:
  ScratchTensor(const KernelArgs& args, DType type, const Shape& shape)
      : memory_(args, static_cast<size_t>(shape.numel()) * size_of(type)),
        tensor_{memory_.data(), type, shape, contiguous_strides(shape)} {}
  const Tensor& operator*() const { return tensor_; }

 private:
  Scratch memory_;
  Tensor tensor_;
};

template <class T>
void run_inference(const KernelArgs& args, const RecurrentSequence& sequence, const RecurrentInference& r) {
  const SequencePlan& plan = sequence.plan;
  if (plan.rows() == 0) return;
  const DType type = r.w_hh->dtype;
  const bool packed_rows = r.x->rank() == 2;
  const int gates = gates_of(sequence.cell);
  const int64_t hidden = r.w_hh->shape[1], width = gates * hidden, batch = plan.batch();
  const std::vector<StepGroup> groups =
      groups_of_steps(plan, sequence.reverse, kProductBytes / (width * static_cast<int64_t>(sizeof(T))));
  int64_t room = 0;  // the rows of the largest group
  for (const StepGroup& group : groups) room = std::max(room, group.rows);

  const Contiguous<T> w(r.w_hh), start(r.h0), start_cells(r.c0), state_bias(r.state_bias);
  const mx::detail::Converted w_ih(*r.w_ih, type);
  const Tensor turned{w_ih->data, type, {w_ih->shape[1], width}, {w_ih->strides[1], w_ih->strides[0]}};
  std::optional<mx::detail::Converted> bias;
  if (r.bias != nullptr) bias.emplace(*r.bias, type);
  const Scratch packed(args, detail::packed_forward_size<T>(gates, hidden) * sizeof(T));
  detail::pack_forward<T>(packed.as<T>(), w.data(), gates, hidden);
  const ScratchTensor state(args, dtype_of<T>, {batch, hidden}), cells(args, dtype_of<T>, {batch, hidden});
  std::copy_n(start.data(), batch * hidden, (*state).template as<T>());
  if (start_cells.data() != nullptr)
    std::copy_n(start_cells.data(), batch * hidden, (*cells).template as<T>());
  const bool converts = type != dtype_of<T>, y_in_place = !converts && r.y->contiguous();
  const ScratchTensor products(args, type, {room, width}),
      wide(args, dtype_of<T>, {converts ? room : 0, width}),
      results(args, dtype_of<T>, {y_in_place ? 0 : room, hidden});

  for (const StepGroup& group : groups) {
    const int64_t first = group.first_row, rows = group.rows;
    const auto part_of = [&](const Tensor& whole) {
      return packed_rows ? whole.narrowed(0, first, rows)
                         : whole.narrowed(0, group.first_step, group.end - group.begin);
    };
    const mx::detail::Converted x(part_of(*r.x), type);
    // A sequence has as many rows as x; so a chunk of it has the leading dimensions of x.
    Shape shape = x->shape;
    shape[shape.rank() - 1] = width;
    const Tensor product{(*products).data, type, shape, contiguous_strides(shape)};
    const mx::detail::ProductPlan p = mx::detail::plan_product(product, *x, turned);
    GemmOptions options;
    if (bias) options.bias = (*bias)->data, options.bias_stride = (*bias)->strides[0];
    if (p.dim_count == 0)
      gemm(type, p.m, p.n, p.k, p.a, p.b, p.c, p.c_row_stride, p.c_col_stride, options);
    else
      gemm_batched(type, p.batch(), p.m, p.n, p.k, p.a, p.b, p.c, p.c_row_stride, p.c_col_stride, options);
    const Tensor& read = converts ? *wide : *products;
    if (converts) copy((*wide).narrowed(0, 0, rows), (*products).narrowed(0, 0, rows));
    T* const to = y_in_place ? r.y->as<T>() + first * hidden : (*results).template as<T>();
    T *const h = (*state).template as<T>(), *const c = (*cells).template as<T>();
    const detail::ForwardSteps<T> steps{
        sequence, hidden,  read.as<T>(), packed.as<T>(), state_bias.data(), h,     c,
        to,       nullptr, nullptr,      group.begin,    group.end,         first, h,
        c};
    for_blocks(batch, [&](int64_t from, int64_t until) { detail::forward_steps<T>(steps, from, until); });
    if (y_in_place) continue;
    const Tensor part = part_of(*r.y);
    copy(part, Tensor{(*results).data, dtype_of<T>, part.shape, contiguous_strides(part.shape)});
  }
  if (r.last_cells != nullptr) copy(*r.last_cells, *cells);
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

void recurrent_inference(const KernelArgs& args, const RecurrentSequence& sequence,
                         const RecurrentInference& operands) {
  if (operands.w_hh->dtype == f64)
    run_inference<double>(args, sequence, operands);
  else
    run_inference<float>(args, sequence, operands);
}

void recurrent_backward(const KernelArgs& args, const RecurrentSequence& sequence,
                        const RecurrentGradient& gradient) {
  if (gradient.weights->dtype == f64)
    run_backward<double>(args, sequence, gradient);
  else
    run_backward<float>(args, sequence, gradient);
}

}  // namespace mx::kernels
