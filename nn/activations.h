// Activations as torch.nn defines them: a module for each, and a function for each that is not an operator
// already.
//
// The functions are composed of operators, so they are differentiable. At 0 the gradients of leaky_relu,
// prelu, elu, selu and celu are the left derivatives. A function throws InvalidArgument for an argument that
// one of its operators rejects.
//
// Thread-safety: that of Module (nn/module.h).
#pragma once

#include <cstdint>
#include <optional>
#include <source_location>
#include <string>

#include "nn/detail/call_site.h"
#include "nn/module.h"
#include "operators/elementwise_unary.h"
#include "operators/random.h"
#include "operators/softmax.h"

namespace mx::nn {

/// x if x > 0, otherwise slope x.
NDArray leaky_relu(const Arg& x, double slope = 0.01);
/// leaky_relu with a trainable slope: one number, or one per entry of dimension 1.
NDArray prelu(const Arg& x, const NDArray& slope);
/// x if x > 0, otherwise alpha (exp(x) - 1).
NDArray elu(const Arg& x, double alpha = 1);
/// A scaled elu, with the alpha and the scale that preserve mean 0 and variance 1.
NDArray selu(const Arg& x);
/// x if x > 0, otherwise alpha (exp(x / alpha) - 1).
NDArray celu(const Arg& x, double alpha = 1);
/// x clamped to [low, high]; relu6 clamps to [0, 6].
NDArray hardtanh(const Arg& x, double low = -1, double high = 1);
NDArray relu6(const Arg& x);
/// hardsigmoid is x / 6 + 1 / 2 clamped to [0, 1]; hardswish is x hardsigmoid(x).
NDArray hardsigmoid(const Arg& x);
NDArray hardswish(const Arg& x);
/// x tanh(softplus(x)).
NDArray mish(const Arg& x);
/// log(sigmoid(x)) without overflow.
NDArray log_sigmoid(const Arg& x);
/// x / (1 + |x|).
NDArray softsign(const Arg& x);
/// log(1 + exp(beta x)) / beta.
NDArray scaled_softplus(const Arg& x, double beta);
/// x - tanh(x).
NDArray tanhshrink(const Arg& x);
/// 0 where |x| <= limit; elsewhere softshrink moves x towards 0 by `limit`, and hardshrink returns x. Throw
/// InvalidArgument for a negative limit.
NDArray softshrink(const Arg& x, double limit = 0.5);
NDArray hardshrink(const Arg& x, double limit = 0.5);
/// x if x > limit, otherwise `value`.
NDArray threshold(const Arg& x, double limit, double value);
/// softmax(-x).
NDArray softmin(const Arg& x, IntArg axis = -1);
/// leaky_relu with slopes drawn uniformly from [low, high), one for each element; without `train`, with the
/// slope (low + high) / 2. Throws InvalidArgument unless low <= high.
NDArray rrelu(const Arg& x, double low = 1. / 8, double high = 1. / 3, bool train = false,
              Generator* generator = nullptr);
/// The first half of dimension `axis` times the sigmoid of the second half. Throws InvalidArgument if the
/// size of the dimension is odd.
NDArray glu(const Arg& x, IntArg axis = -1);

/// A module that applies a function of one array.
template <class Self, NDArray (*kFunction)(const Arg&)>
class FunctionModule : public ModuleOf<Self> {
 public:
  NDArray forward(const NDArray& x) override { return kFunction(detail::at_call(x)); }
};

class ReLU : public FunctionModule<ReLU, mx::relu> {};
class ReLU6 : public FunctionModule<ReLU6, relu6> {};
class SELU : public FunctionModule<SELU, selu> {};
class SiLU : public FunctionModule<SiLU, mx::silu> {};
class Mish : public FunctionModule<Mish, mish> {};
class Sigmoid : public FunctionModule<Sigmoid, mx::sigmoid> {};
class LogSigmoid : public FunctionModule<LogSigmoid, log_sigmoid> {};
class Hardsigmoid : public FunctionModule<Hardsigmoid, hardsigmoid> {};
class Hardswish : public FunctionModule<Hardswish, hardswish> {};
class Tanh : public FunctionModule<Tanh, mx::tanh> {};
class Softsign : public FunctionModule<Softsign, softsign> {};
class Tanhshrink : public FunctionModule<Tanhshrink, tanhshrink> {};

/// A module that applies a function of an array and one number.
template <class Self, NDArray (*kFunction)(const Arg&, double)>
class ScaledModule : public ModuleOf<Self> {
 public:
  NDArray forward(const NDArray& x) override { return kFunction(detail::at_call(x), number_); }
  std::string extra() const override;

 protected:
  explicit ScaledModule(double number) : number_(number) {}

 private:
  double number_;
};

class LeakyReLU : public ScaledModule<LeakyReLU, leaky_relu> {
 public:
  explicit LeakyReLU(double slope = 0.01) : ScaledModule(slope) {}
};
class ELU : public ScaledModule<ELU, elu> {
 public:
  explicit ELU(double alpha = 1) : ScaledModule(alpha) {}
};
class CELU : public ScaledModule<CELU, celu> {
 public:
  explicit CELU(double alpha = 1) : ScaledModule(alpha) {}
};
class Softshrink : public ScaledModule<Softshrink, softshrink> {
 public:
  explicit Softshrink(double limit = 0.5) : ScaledModule(limit) {}
};
class Hardshrink : public ScaledModule<Hardshrink, hardshrink> {
 public:
  explicit Hardshrink(double limit = 0.5) : ScaledModule(limit) {}
};
class Softplus : public ScaledModule<Softplus, scaled_softplus> {
 public:
  explicit Softplus(double beta = 1) : ScaledModule(beta) {}
};

/// A module that applies a function along an axis.
template <class Self, NDArray (*kFunction)(const Arg&, IntArg)>
class AxisModule : public ModuleOf<Self> {
 public:
  NDArray forward(const NDArray& x) override { return kFunction(detail::at_call(x), axis_); }
  std::string extra() const override;

 protected:
  explicit AxisModule(int64_t axis) : axis_(axis) {}

 private:
  int64_t axis_;
};

class Softmax : public AxisModule<Softmax, mx::softmax> {
 public:
  explicit Softmax(IntArg axis = -1) : AxisModule(axis) {}
};
class Softmin : public AxisModule<Softmin, softmin> {
 public:
  explicit Softmin(IntArg axis = -1) : AxisModule(axis) {}
};
class LogSoftmax : public AxisModule<LogSoftmax, mx::log_softmax> {
 public:
  explicit LogSoftmax(IntArg axis = -1) : AxisModule(axis) {}
};
class GLU : public AxisModule<GLU, glu> {
 public:
  explicit GLU(IntArg axis = -1) : AxisModule(axis) {}
};

class GELU : public ModuleOf<GELU> {
 public:
  /// `approximate` is "none" or "tanh" (the tanh approximation). Throws InvalidArgument for another value.
  explicit GELU(const std::string& approximate = "none",
                std::source_location where = std::source_location::current());
  NDArray forward(const NDArray& x) override;
  std::string extra() const override;

 private:
  bool tanh_;
};

class Hardtanh : public ModuleOf<Hardtanh> {
 public:
  /// Throws InvalidArgument unless low < high.
  explicit Hardtanh(double low = -1, double high = 1,
                    std::source_location where = std::source_location::current());
  NDArray forward(const NDArray& x) override { return hardtanh(detail::at_call(x), low_, high_); }
  std::string extra() const override;

 private:
  double low_, high_;
};

/// Softmax over the channels of (N, C, H, W) or (C, H, W).
class Softmax2d : public ModuleOf<Softmax2d> {
 public:
  NDArray forward(const NDArray& x) override;
};

class Threshold : public ModuleOf<Threshold> {
 public:
  Threshold(double limit, double value) : limit_(limit), value_(value) {}
  NDArray forward(const NDArray& x) override { return threshold(detail::at_call(x), limit_, value_); }
  std::string extra() const override;

 private:
  double limit_, value_;
};

/// rrelu(), with random slopes in training mode. The mode and the random numbers are those of Dropout.
class RReLU : public ModuleOf<RReLU> {
 public:
  /// Throws InvalidArgument unless low <= high.
  explicit RReLU(double low = 1. / 8, double high = 1. / 3, std::optional<Generator> generator = {},
                 std::source_location where = std::source_location::current());
  NDArray forward(const NDArray& x) override;
  std::string extra() const override;

 private:
  double low_, high_;
  std::optional<Generator> generator_;
};

/// Parameter: weight (count,), the slopes; each is initialised to `initial`.
class PReLU : public ModuleOf<PReLU> {
 public:
  explicit PReLU(IntArg count = 1, double initial = 0.25,
                 std::source_location where = std::source_location::current());
  NDArray forward(const NDArray& x) override { return prelu(detail::at_call(x), weight); }
  std::string extra() const override;

  Parameter weight;
};

namespace detail {
std::string number_extra(const char* what, double number);
}  // namespace detail

template <class Self, NDArray (*kFunction)(const Arg&, double)>
std::string ScaledModule<Self, kFunction>::extra() const {
  return detail::number_extra("", number_);
}
template <class Self, NDArray (*kFunction)(const Arg&, IntArg)>
std::string AxisModule<Self, kFunction>::extra() const {
  return detail::number_extra("axis=", static_cast<double>(axis_));
}

}  // namespace mx::nn
