// GradientContext: the argument of an operator's gradient function.
//
// A gradient function calls operators, so that its result can be differentiated too:
//
//   void gradient_mul(GradientContext& g) {
//     if (g.wanted(0)) g.set(0, g.head() * g.input(1));
//     if (g.wanted(1)) g.set(1, g.head() * g.input(0));
//   }
//
// The operator's record lists the values that the gradient reads (GradientUses). No other values are kept for
// the backward pass.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "ndarray/attrs.h"
#include "ndarray/launch.h"
#include "ndarray/ndarray.h"

namespace mx {

struct Operator;

/// The inputs and outputs whose values a gradient reads, one bit for each. Of the others it sees only shape
/// and type. Inputs and outputs from index 64 on have no bit, so their values are not kept.
struct GradientUses {
  uint64_t inputs = 0;
  uint64_t outputs = 0;
  /// True for sums of products: the gradient of a listed input reads the other ones, not itself, and that of
  /// an input that is not listed, such as a bias, reads none. Only values for required gradients are kept.
  bool crosswise = false;
  /// Not null: entry i is the set of inputs, of those in `inputs`, that the gradient of input i reads. One
  /// entry for each input. Only values for required gradients are kept.
  const uint64_t* by_gradient = nullptr;

  /// Returns whether input i is read for the gradients of some of `count` inputs, those for which
  /// wanted(k) holds.
  template <class F>
  bool reads_input(size_t i, size_t count, const F& wanted) const {
    if (!has_bit(inputs, i)) return false;
    if (!crosswise && by_gradient == nullptr) return true;
    for (size_t k = 0; k < count; ++k) {
      const bool reads = by_gradient != nullptr ? has_bit(by_gradient[k], i) : k != i && has_bit(inputs, k);
      if (reads && wanted(k)) return true;
    }
    return false;
  }

  bool operator==(const GradientUses&) const = default;
};
/// For gradients that do not list what they read: all values are kept.
inline constexpr GradientUses kUsesAll{~uint64_t{0}, ~uint64_t{0}};

class GradientContext {
 public:
  /// Unused `inputs` and `outputs` have shape and type but no values. An empty handle among the inputs stands
  /// for the shape and type of head 0. `results`: one empty handle per input.
  GradientContext(const Operator& op, const Attrs& attrs, std::span<const NDArray> inputs,
                  std::span<const NDArray> outputs, std::span<const NDArray> heads,
                  std::span<const uint8_t> wanted, std::span<NDArray> results)
      : op_(op),
        attrs_(attrs),
        inputs_(inputs),
        outputs_(outputs),
        heads_(heads),
        wanted_(wanted),
        results_(results) {}

  size_t inputs() const { return inputs_.size(); }
  size_t outputs() const { return heads_.size(); }
  template <class T>
  const T& attr() const {
    return attrs_.get<T>();
  }

  /// Return values. Throw InvalidState if the record does not list them as used.
  const NDArray& input(size_t i) const;
  const NDArray& output(size_t i = 0) const;
  const Shape& input_shape(size_t i) const { return known(i).shape(); }
  DType input_dtype(size_t i) const { return known(i).dtype(); }

  /// Returns d(loss)/d(output i); an empty handle if the loss does not depend on that output, which is
  /// possible only if the operator has several outputs.
  const NDArray& head(size_t i = 0) const { return heads_[i]; }
  /// The same, but zeros instead of an empty handle.
  NDArray head_or_zeros(size_t i) const;

  /// Returns true if the gradient of input i is needed.
  bool wanted(size_t i) const { return wanted_[i] != 0; }
  /// Sets the gradient of input i. If it has the shape that input i was broadcast to, it is summed to the
  /// shape of the input. If it has another floating-point type, it is converted. The gradient of an input
  /// that is not set is zero.
  void set(size_t i, const NDArray& gradient);

 private:
  const NDArray& known(size_t i) const { return inputs_[i].defined() ? inputs_[i] : heads_[0]; }

  const Operator& op_;
  const Attrs& attrs_;
  std::span<const NDArray> inputs_, outputs_, heads_;
  std::span<const uint8_t> wanted_;
  std::span<NDArray> results_;
};

/// The gradient of an operator whose derivative is zero wherever it exists (floor, sign).
void zero_gradient(GradientContext& g);

/// Returns x summed over the dimensions in which `shape` was broadcast to x's shape. Throws InvalidArgument
/// if `shape` does not broadcast to x's shape.
NDArray sum_to(const NDArray& x, const Shape& shape);

namespace detail {
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// Returns zeros as a broadcast view of one element, for operators that begin with a copy of an array of
/// zeros.
NDArray zeros_view(const Shape& shape, DType dtype, Context context);
}  // namespace detail

}  // namespace mx
