#include "operators/kernels/elementwise_loss.h"

#include <algorithm>
#include <array>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/kernels/convert_rows.h"
#include "ndarray/kernels/copy.h"
#include "ndarray/kernels/strided_loop.h"
#include "operators/kernels/binary.h"
#include "operators/kernels/elementwise_loss_rows.h"
#include "operators/kernels/reduce.h"
#include "operators/kernels/unary.h"

namespace mx::kernels {
namespace {

/// Elements per block: all operands of a block fit into the first-level cache.
constexpr int64_t kLossBlock = 1024;
static_assert(kLoopGrain % kLossBlock == 0);

/// Operands in the order of the plan; null if a call does not have the operand.
enum LossOperand : uint8_t { kOut, kX, kTarget, kWeight, kHead, kOperands };
using LossOperands = std::array<const Tensor*, kOperands>;

Tensor flat_row(void* data, DType type, int64_t n) { return {data, type, {n}, {1}}; }

/// Returns the precomputed values that the row function needs, in `buffer`; null if it needs none.
const void* make_inner_row(LossInner inner, const LossRun& run, DType type, void* buffer, int64_t n) {
  const Tensor to = flat_row(buffer, type, n), x = flat_row(const_cast<void*>(run.x), type, n),
               target = flat_row(const_cast<void*>(run.target), type, n);
  switch (inner) {
    case LossInner::none:
      return nullptr;
    case LossInner::softplus_of_minus_x:
      unary(UnaryOp::neg, to, x);
      unary(UnaryOp::softplus, to, to);
      break;
    case LossInner::sigmoid_of_x:
      unary(UnaryOp::sigmoid, to, x);
      break;
    case LossInner::log_of_target:
      unary(UnaryOp::log, to, target);
      break;
    case LossInner::exp_of_target:
      unary(UnaryOp::exp, to, target);
      break;
    case LossInner::bce:
      binary(BinaryOp::binary_cross_entropy, to, x, target);
      break;
  }
  return buffer;
}

/// Applies the row functions to all blocks.
class LossWalk {
 public:
  LossWalk(const LossOperands& operands, DType computing, const LossRows& rows, double parameter,
           double scale)
      : operands_(operands),
        order_(row_major_order(operands[kX]->shape)),
        plan_(with_stand_ins()),
        computing_(computing),
        bytes_(static_cast<int64_t>(size_of(computing))),
        rows_(rows),
        parameter_(parameter),
        scale_(scale) {
    for (size_t k = 0; k < kOperands; ++k) {
      if (operands_[k] == nullptr) continue;
      const DType type = operands_[k]->dtype;
      direct_[k] = type == computing && plan_.strides[k][0] == 1;
      convert_[k] = k == kOut ? convert_row(type, computing) : convert_row(computing, type);
    }
    const Tensor* const out = operands_[kOut];
    stream_ = out != nullptr && plan_.numel * static_cast<int64_t>(size_of(out->dtype)) >= kStreamBytes;
  }
  LossWalk(const LossWalk&) = delete;
  LossWalk& operator=(const LossWalk&) = delete;

  int64_t numel() const { return plan_.numel; }

  /// Calls done(first, values, n) for every block, on several threads. If possible, the values are already in
  /// the result.
  template <class Done>
  void blocks(const Done& done) const {
    parallel_for(plan_.numel, kLoopGrain, [&](int64_t begin, int64_t end) {
      alignas(64) char buffers[kOperands + 1][kLossBlock * sizeof(double)];
      const int64_t most = stream_ ? kStreamBlock : kLossBlock;
      for (int64_t first = begin; first < end; first += most)
        block(first, std::min(most, end - first), buffers, done);
      if (stream_) stream_fence();
    });
  }

  /// Writes the values of each block to the result.
  void to_out() const {
    const Tensor& out = *operands_[kOut];
    const auto out_bytes = static_cast<int64_t>(size_of(out.dtype));
    blocks([&](int64_t first, const char* values, int64_t n) {
      for_each_run<kOperands>(plan_, first, first + n, [&](const int64_t* at, int64_t run) {
        void* const to = element_at(out.data, out.dtype, at[kOut]);
        if (to == values) return;
        if (stream_ && direct_[kOut]) {
          stream_row(to, values, run * out_bytes);
        } else {
          convert_[kOut](to, plan_.strides[kOut][0], values, 1, run);
        }
        values += run * bytes_;
      });
    });
  }

 private:
  /// Missing operands are replaced by x. Without a result, the values are summed: in row-major order,
  /// whatever the layout.
  LossOperands with_stand_ins() const {
    LossOperands all = operands_;
    for (const Tensor*& tensor : all)
      if (tensor == nullptr) tensor = operands_[kX];
    if (operands_[kOut] == nullptr) all[kOut] = &order_;
    return all;
  }

  template <class Done>
  void block(int64_t first, int64_t n, char (*buffers)[kLossBlock * sizeof(double)], const Done& done) const {
    std::array<const void*, kOperands> rows{};
    char* result = buffers[kOut];
    int64_t filled = 0;
    for_each_run<kOperands>(plan_, first, first + n, [&](const int64_t* at, int64_t run) {
      if (operands_[kOut] != nullptr && direct_[kOut] && !stream_ && run == n)
        result = operands_[kOut]->as<char>() + at[kOut] * bytes_;
      for (size_t k = kX; k < kOperands; ++k) {
        if (operands_[k] == nullptr) continue;
        const Tensor& t = *operands_[k];
        const void* const from = element_at(t.data, t.dtype, at[k]);
        const bool whole = direct_[k] && run == n;
        rows[k] = whole ? from : buffers[k];
        if (whole && stream_) prefetch_block_ahead(static_cast<const char*>(from), t.dtype);
        if (!whole) convert_[k](buffers[k] + filled * bytes_, 1, from, plan_.strides[k][0], run);
      }
      filled += run;
    });
    LossRun run{rows[kX], rows[kTarget], nullptr, rows[kWeight], rows[kHead], parameter_, scale_};
    run.inner = make_inner_row(rows_.inner, run, computing_, buffers[kOperands], n);
    rows_.row(result, run, n);
    done(first, result, n);
  }

  LossOperands operands_;
  Tensor order_;
  LoopPlan<kOperands> plan_;
  DType computing_;
  int64_t bytes_;
  LossRows rows_;
  double parameter_, scale_;
  std::array<bool, kOperands> direct_;
  std::array<ConvertRow, kOperands> convert_;
  bool stream_;
};

DType computing_in(const Tensor& a, const Tensor& x, const Tensor& target) {
  return a.dtype == f64 || x.dtype == f64 || target.dtype == f64 ? f64 : f32;
}

void check_operands(const char* op, const Tensor& x, const Tensor& target, const Tensor* weight,
                    const Tensor& loss, bool each) {
  MX_CHECK(is_floating(x.dtype), InvalidArgument, "[", op, "] expected floating-point values, got ", x.dtype);
  MX_CHECK(target.shape == x.shape && (weight == nullptr || weight->shape == x.shape), InvalidArgument, "[",
           op, "] expected operands of the input's shape ", x.shape, ", got ",
           target.shape == x.shape ? weight->shape : target.shape);
  const Shape expected = each ? x.shape : Shape{};
  MX_CHECK(loss.shape == expected && is_floating(loss.dtype), InvalidArgument, "[", op,
           "] expected a floating-point loss of shape ", expected, ", got ", loss.dtype, " of ", loss.shape);
}

}  // namespace

void elementwise_loss(ElementwiseLoss op, const Tensor& loss, const Tensor& x, const Tensor& target,
                      const Tensor* weight, const ElementwiseLossOptions& options) {
  check_operands("elementwise_loss", x, target, weight, loss, options.each);
  const DType computing = computing_in(loss, x, target);
  const LossWalk walk({options.each ? &loss : nullptr, &x, &target, weight, nullptr}, computing,
                      loss_values(op, computing), options.parameter, 1);
  if (options.each) return walk.to_out();
  const LossSum sum = loss_sum(computing);
  std::vector<double> sums(static_cast<size_t>((walk.numel() + kLossBlock - 1) / kLossBlock));
  walk.blocks([&](int64_t first, const char* values, int64_t n) {
    sums[static_cast<size_t>(first / kLossBlock)] = sum(values, n);
  });
  double total = 0;
  reduce(ReduceOp::sum, {&total, f64, {}, {}}, flat_row(sums.data(), f64, static_cast<int64_t>(sums.size())),
         {});
  total /= options.divisor;
  copy(loss, {&total, f64, {}, {}});
}

void elementwise_loss_backward(ElementwiseLoss op, const Tensor& dx, const Tensor& dloss, const Tensor& x,
                               const Tensor& target, const Tensor* weight,
                               const ElementwiseLossOptions& options) {
  check_operands("elementwise_loss_backward", x, target, weight, dloss, options.each);
  MX_CHECK(dx.shape == x.shape && is_floating(dx.dtype), InvalidArgument,
           "[elementwise_loss_backward] expected a floating-point result of shape ", x.shape, ", got ",
           dx.dtype, " of ", dx.shape);
  const DType computing = computing_in(dx, x, target);
  double scale = 1;
  if (!options.each) {
    copy({&scale, f64, {}, {}}, dloss);
    scale /= options.divisor;
  }
  const LossWalk walk({&dx, &x, &target, weight, options.each ? &dloss : nullptr}, computing,
                      loss_slopes(op, computing), options.parameter, scale);
  walk.to_out();
}

}  // namespace mx::kernels
