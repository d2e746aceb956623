// NaN passes through the kernels in every instruction set: the minimum and maximum of some of them return the
// number if one operand is NaN. NaN stands in full vectors and in the rest of a row, and its neighbours keep
// the bits that they have without it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "operators/kernels/elementwise_loss.h"
#include "operators/kernels/loss.h"
#include "operators/kernels/reduce.h"
#include "operators/kernels/softmax.h"
#include "operators/kernels/tables.h"
#include "operators/kernels/update.h"
#include "tests/support/instruction_sets.h"
#include "tests/support/tensors.h"

namespace mx {
namespace {

using kernels::BinaryOp;
using kernels::ReduceOp;
using kernels::Row;
using kernels::UnaryOp;
using test::Array;

/// Two full vectors of the widest instruction set's floats, and a rest.
constexpr int64_t kElements = 37;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

template <class T, size_t N>
std::vector<T> row_of(Row row, const std::vector<T> (&operands)[N]) {
  const void* in[N];
  for (size_t k = 0; k < N; ++k) in[k] = operands[k].data();
  std::vector<T> out(kElements);
  row(out.data(), in, kElements);
  return out;
}

/// Puts NaN at each place of operand `which`: the result must be NaN there, and nowhere else.
template <class T, size_t N>
void check_row(const std::string& what, Row row, size_t which) {
  std::vector<T> operands[N];
  for (size_t k = 0; k < N; ++k) operands[k].assign(kElements, T(0.5) + T(0.125) * static_cast<T>(k));
  const std::vector<T> plain = row_of<T, N>(row, operands);
  for (size_t at = 0; at < kElements; ++at) {
    operands[which][at] = std::numeric_limits<T>::quiet_NaN();
    const std::vector<T> got = row_of<T, N>(row, operands);
    operands[which][at] = operands[which][at == 0 ? 1 : 0];
    for (size_t i = 0; i < kElements; ++i) {
      if (i == at) {
        ASSERT_TRUE(std::isnan(got[i]))
            << what << ", operand " << which << ", element " << i << ": " << got[i];
      } else {
        ASSERT_EQ(0, std::memcmp(&plain[i], &got[i], sizeof(T)))
            << what << ", element " << i << " beside " << at;
      }
    }
  }
}

template <class T>
void check_elementwise() {
  const DType type = dtype_of<T>;
  for (int i = 0; i < kernels::kUnaryOps; ++i) {
    const auto op = static_cast<UnaryOp>(i);
    if (kernels::unary_result(op, type) == bool_) continue;
    for (const Row row : {sizeof(T) == 4 ? kernels::unary_f32_row(op) : kernels::unary_f64_row(op),
                          kernels::unary_exact_row(op, type), kernels::unary_library_row(op, type)})
      if (row != nullptr) check_row<T, 1>(kernels::to_string(op), row, 0);
  }
  using enum BinaryOp;
  for (const BinaryOp op :
       {pow, fmod, mod, floor_div, atan2, hypot, logaddexp, maximum, minimum, silu_backward, gelu_backward,
        gelu_tanh_backward, binary_cross_entropy, tanh_backward, sigmoid_backward})
    for (const Row row : {kernels::binary_vector_row(op, type), kernels::binary_exact_row(op, type),
                          kernels::binary_library_row(op, type)})
      for (size_t which = 0; which < 2 && row != nullptr; ++which)
        check_row<T, 2>(kernels::to_string(op), row, which);
  for (size_t which = 0; which < 3; ++which) check_row<T, 3>("clamp", kernels::clamp_row(type), which);
}

TEST(NaN, PassesThroughElementwiseFunctionsInEveryInstructionSet) {
  test::with_every_instruction_set([](int64_t) {
    check_elementwise<float>();
    check_elementwise<double>();
  });
}

void check_reductions(DType type, int64_t at) {
  using enum ReduceOp;
  for (int64_t axis : {0, 1}) {
    const Shape shape = axis == 1 ? Shape{3, kElements} : Shape{kElements, 3};
    Array x(type, shape);
    x.fill([&](int64_t i) {
      const bool middle = axis == 1 ? i / kElements == 1 && i % kElements == at : i % 3 == 1 && i / 3 == at;
      return middle ? kNaN : 0.5 + static_cast<double>(i % 5);
    });
    for (const ReduceOp op :
         {sum, prod, mean, max, min, sum_squares, sum_abs, max_abs, logsumexp, var, std}) {
      Array y(kernels::reduce_result(op, type), {3});
      kernels::reduce(op, y.t, x.t, {axis});
      for (int64_t i = 0; i < 3; ++i)
        EXPECT_EQ(i == 1, std::isnan(y.get(i)))
            << kernels::to_string(op) << " along " << axis << ", NaN at " << at;
    }
    for (const ReduceOp op : {argmax, argmin}) {
      Array y(i64, {3});
      kernels::reduce(op, y.t, x.t, {axis});
      EXPECT_EQ(static_cast<double>(at), y.get(1)) << kernels::to_string(op);
    }
  }
}

void check_softmax(DType type, int64_t n, int64_t at) {
  Array x(type, {3, n}), y(type, {3, n}), sums(type, {3}), losses(type, {3}), labels(i64, {3});
  x.fill([&](int64_t i) { return i == n + at ? kNaN : static_cast<double>(i % 5); });
  for (bool log : {false, true}) {
    (log ? kernels::log_softmax : kernels::softmax)(y.t, x.t, 1);
    for (int64_t i = 0; i < 3 * n; ++i)
      ASSERT_EQ(i / n == 1, std::isnan(y.get(i)))
          << "softmax of " << n << ", NaN at " << at << ", element " << i;
  }
  kernels::logsumexp(sums.t, x.t, 1);
  labels.fill([](int64_t) { return 0; });
  kernels::cross_entropy(losses.t, x.t, labels.t, nullptr, {.reduction = kernels::LossReduction::none});
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(i == 1, std::isnan(sums.get(i))) << "logsumexp";
    EXPECT_EQ(i == 1, std::isnan(losses.get(i))) << "cross entropy";
  }
}

TEST(NaN, PassesThroughReductionsAndSoftmaxInEveryInstructionSet) {
  test::with_every_instruction_set([](int64_t) {
    for (const DType type : {f32, f64, f16, bf16})
      for (int64_t at = 0; at < kElements; at += 3) {
        check_reductions(type, at);
        check_softmax(type, kElements, at);
        check_softmax(type, 48, at);  // full vectors only, which have a way of their own
      }
  });
}

void check_losses(DType type, int64_t at) {
  using enum kernels::ElementwiseLoss;
  for (const auto loss : {mse, l1, huber, smooth_l1, bce, bce_with_logits, kl_div, kl_div_log, hinge}) {
    Array x(type, {kElements}), t(type, {kElements}), y(type, {kElements}), head(type, {kElements});
    x.fill([&](int64_t i) { return i == at ? kNaN : 0.25; });
    t.fill([](int64_t) { return 0.5; });
    head.fill([](int64_t) { return 1; });
    const kernels::ElementwiseLossOptions options{.parameter = 1, .each = true};
    kernels::elementwise_loss(loss, y.t, x.t, t.t, nullptr, options);
    for (int64_t i = 0; i < kElements; ++i)
      ASSERT_EQ(i == at, std::isnan(y.get(i))) << "loss " << static_cast<int>(loss) << " at " << at;
    if (loss == kl_div || loss == kl_div_log || loss == hinge) continue;  // their slopes do not depend on x
    kernels::elementwise_loss_backward(loss, y.t, head.t, x.t, t.t, nullptr, options);
    for (int64_t i = 0; i < kElements; ++i)
      ASSERT_EQ(i == at, std::isnan(y.get(i))) << "slope " << static_cast<int>(loss) << " at " << at;
  }
}

/// The limit on gradients must not hide NaN: a diverged model would look alive.
void check_updates(DType type, int64_t at) {
  Array w(type, {kElements}), g(type, {kElements}), m(type, {kElements}), v(type, {kElements});
  Array rate(f64, {}), step(f64, {});
  rate.set(0, 0.5), step.set(0, 1);
  const auto reset = [&] {
    w.fill([](int64_t) { return 1; });
    g.fill([&](int64_t i) { return i == at ? kNaN : 3; });
    m.fill([](int64_t) { return 0; });
    v.fill([](int64_t) { return 0; });
  };
  const auto expect = [&](const char* rule) {
    for (int64_t i = 0; i < kElements; ++i) ASSERT_EQ(i == at, std::isnan(w.get(i))) << rule << " at " << at;
  };
  const kernels::UpdateCommon common{.learning_rate = rate.t, .clip = 1};
  reset();
  kernels::sgd_update({{&w.t, 1}, {&g.t, 1}}, {}, common);
  expect("sgd");
  reset();
  kernels::adam_update({{&w.t, 1}, {&g.t, 1}}, {&m.t, 1}, {&v.t, 1}, common, {.step = &step.t});
  expect("adam");
}

// As torch.nn.utils.clip_grad_norm_: with a factor of 1 the step would change the parameters whose own
// gradients are numbers, while the others become NaN.
TEST(NaN, OfANormIsNaNInTheFactorThatLimitsIt) {
  for (const DType type : {f32, f64}) {
    Array norm(type, {}), scale(type, {});
    norm.set(0, kNaN);
    kernels::clip_scale(scale.t, norm.t, 1);
    EXPECT_TRUE(std::isnan(scale.get(0)));
    norm.set(0, std::numeric_limits<double>::infinity());
    kernels::clip_scale(scale.t, norm.t, 1);
    EXPECT_EQ(0, scale.get(0));
  }
}

TEST(NaN, PassesThroughLossesAndUpdatesInEveryInstructionSet) {
  test::with_every_instruction_set([](int64_t) {
    for (const DType type : {f32, f64})
      for (int64_t at = 0; at < kElements; at += 3) {
        check_losses(type, at);
        check_updates(type, at);
      }
  });
}

}  // namespace
}  // namespace mx
