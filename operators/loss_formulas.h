// The scalar formulas of the elementwise losses and of their derivatives, for the CPU's kernels and for GPUs.
#pragma once

#include <cmath>

#include "operators/formulas.h"
#include "operators/kernels/elementwise_loss.h"

namespace mx::formulas {

using kernels::ElementwiseLoss;

template <class T>
constexpr T limited(T z, T limit) {
  return z > limit ? limit : z < -limit ? -limit : z;
}
template <class T>
constexpr T positive_part(T s) {
  return s <= T{0} ? T{0} : s;
}

/// The part of a loss that is a function of its own, which the CPU computes beforehand for many elements:
/// input x, target t. 0 for a loss without such a part.
template <class T>
constexpr T loss_inner(ElementwiseLoss op, T x, T t) {
  switch (op) {
    case ElementwiseLoss::bce:
      return cross_entropy_term(x, t);
    case ElementwiseLoss::bce_with_logits:
      return softplus(-x);
    case ElementwiseLoss::kl_div:
      return std::log(t);
    case ElementwiseLoss::kl_div_log:
      return std::exp(t);
    default:
      return T{0};
  }
}
template <class T>
constexpr T slope_inner(ElementwiseLoss op, T x, T t) {
  switch (op) {
    case ElementwiseLoss::bce_with_logits:
      return sigmoid(x);
    case ElementwiseLoss::kl_div_log:
      return std::exp(t);
    default:
      return T{0};
  }
}

/// The loss of one element: input x, target t, inner part e = loss_inner(op, x, t), weight w, parameter p
/// (see ElementwiseLoss).
template <class T>
constexpr T loss_value(ElementwiseLoss op, T x, T t, T e, T w, T p) {
  const T z = std::fabs(x - t);
  switch (op) {
    case ElementwiseLoss::mse:
      return (x - t) * (x - t);
    case ElementwiseLoss::l1:
      return z;
    case ElementwiseLoss::huber: {  // the square up to the parameter, linear beyond it
      const T near = z < p ? z : p;
      return T{0.5} * near * near + p * (z - near);
    }
    case ElementwiseLoss::smooth_l1: {
      const T near = z < p ? z : p;
      return T{0.5} * near * (near / p) + (z - near);
    }
    case ElementwiseLoss::bce:
      return e;
    case ElementwiseLoss::bce_with_logits:
      return (T{1} - t) * x + (T{1} + (w - T{1}) * t) * e;
    case ElementwiseLoss::kl_div:
      return t == T{0} ? T{0} : t * (e - x);
    case ElementwiseLoss::kl_div_log:
      return e == T{0} ? T{0} : e * (t - x);
    case ElementwiseLoss::hinge:
      return positive_part(p - x * t);
    case ElementwiseLoss::hinge_embedding:
      break;
  }
  return t == T{1} ? x : t == T{-1} ? positive_part(p - x) : T{0};
}

/// The derivative of loss_value() with respect to x; e = slope_inner(op, x, t).
template <class T>
constexpr T loss_slope(ElementwiseLoss op, T x, T t, T e, T w, T p) {
  const T z = x - t;
  switch (op) {
    case ElementwiseLoss::mse:
      return T{2} * z;
    case ElementwiseLoss::l1:
      return z > T{0} ? T{1} : z < T{0} ? T{-1} : z;  // NaN for NaN
    case ElementwiseLoss::huber:
      return limited(z, p);
    case ElementwiseLoss::smooth_l1:
      return limited(z / p, T{1});
    case ElementwiseLoss::bce: {
      const T variance = x * (T{1} - x), least = static_cast<T>(1e-12);  // PyTorch's bound
      return z / (variance < least ? least : variance);
    }
    case ElementwiseLoss::bce_with_logits:
      return (T{1} - t) * e - w * t * (T{1} - e);
    case ElementwiseLoss::kl_div:
      return -t;
    case ElementwiseLoss::kl_div_log:
      return -e;
    case ElementwiseLoss::hinge:
      return p - x * t <= T{0} ? T{0} : -t;
    case ElementwiseLoss::hinge_embedding:
      break;
  }
  const T unlike = p - x <= T{0} ? T{0} : T{-1};
  return t == T{1} ? T{1} : t == T{-1} ? unlike : T{0};
}

}  // namespace mx::formulas
