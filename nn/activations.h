// Activations, as torch.nn defines them: functions that operators do not have already, and modules of all.
//
// The functions are made of operators and have gradients; those of leaky_relu, prelu, elu, selu and celu at 0
// are those of the left side. They throw InvalidArgument for what their operators do not take.
#pragma once

#include <cstdint>
#include <string>

#include "nn/module.h"
#include "operators/elementwise_unary.h"
#include "operators/softmax.h"

namespace mx::nn {

/// x where it is above 0, else slope x.
NDArray leaky_relu(const Arg& x, double slope = 0.01);
/// The same, with a slope that is trained: one number, or one per entry of dimension 1.
NDArray prelu(const Arg& x, const NDArray& slope);
/// x where it is above 0, else alpha (exp(x) - 1).
NDArray elu(const Arg& x, double alpha = 1);
/// elu with the alpha and the factor that keep mean 0 and variance 1.
NDArray selu(const Arg& x);
/// x where it is above 0, else alpha (exp(x / alpha) - 1).
NDArray celu(const Arg& x, double alpha = 1);
/// x limited to [low, high]; relu6 to [0, 6].
NDArray hardtanh(const Arg& x, double low = -1, double high = 1);
NDArray relu6(const Arg& x);
/// x / 6 + 1 / 2 limited to [0, 1]; and x times that.
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
/// The first half of dimension `axis` times the sigmoid of the second. Throws InvalidArgument when it is odd.
NDArray glu(const Arg& x, IntArg axis = -1);

/// A module of a function of one array.
template <class Self, NDArray (*kFunction)(const Arg&)>
class FunctionModule : public ModuleOf<Self> {
 public:
  NDArray forward(const NDArray& x) override { return kFunction(x); }
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

/// A module of a function with one number.
template <class Self, NDArray (*kFunction)(const Arg&, double)>
class ScaledModule : public ModuleOf<Self> {
 public:
  NDArray forward(const NDArray& x) override { return kFunction(x, number_); }
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
class Softplus : public ScaledModule<Softplus, scaled_softplus> {
 public:
  explicit Softplus(double beta = 1) : ScaledModule(beta) {}
};

/// A module of a function along an axis.
template <class Self, NDArray (*kFunction)(const Arg&, IntArg)>
class AxisModule : public ModuleOf<Self> {
 public:
  NDArray forward(const NDArray& x) override { return kFunction(x, axis_); }
  std::string extra() const override;

 protected:
  explicit AxisModule(int64_t axis) : axis_(axis) {}

 private:
  int64_t axis_;
};

class Softmax : public AxisModule<Softmax, mx::softmax> {
 public:
  explicit Softmax(int64_t axis = -1) : AxisModule(axis) {}
};
class LogSoftmax : public AxisModule<LogSoftmax, mx::log_softmax> {
 public:
  explicit LogSoftmax(int64_t axis = -1) : AxisModule(axis) {}
};
class GLU : public AxisModule<GLU, glu> {
 public:
  explicit GLU(int64_t axis = -1) : AxisModule(axis) {}
};

class GELU : public ModuleOf<GELU> {
 public:
  /// "none", or "tanh" for the approximation; else InvalidArgument.
  explicit GELU(const std::string& approximate = "none");
  NDArray forward(const NDArray& x) override;
  std::string extra() const override;

 private:
  bool tanh_;
};

class Hardtanh : public ModuleOf<Hardtanh> {
 public:
  /// Throws InvalidArgument unless low < high.
  explicit Hardtanh(double low = -1, double high = 1);
  NDArray forward(const NDArray& x) override { return hardtanh(x, low_, high_); }
  std::string extra() const override;

 private:
  double low_, high_;
};

/// Parameter: weight (count,), the slopes, at first `initial`.
class PReLU : public ModuleOf<PReLU> {
 public:
  explicit PReLU(int64_t count = 1, double initial = 0.25);
  NDArray forward(const NDArray& x) override { return prelu(x, weight); }
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
