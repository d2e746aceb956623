// GradientContext: what the gradient of an operator is made from.
//
// A gradient calls operators, so that it has a gradient itself:
//
//   void gradient_mul(GradientContext& g) {
//     if (g.wanted(0)) g.set(0, g.head() * g.input(1));
//     if (g.wanted(1)) g.set(1, g.head() * g.input(0));
//   }
//
// and its record says which values it looks at, so that no others are kept until then (GradientUses).
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "ndarray/attrs.h"
#include "ndarray/ndarray.h"

namespace mx {

struct Operator;

/// Which values a gradient looks at; of the others it sees shape and type. Bits beyond the 64th: none.
struct GradientUses {
  uint64_t inputs = 0;
  uint64_t outputs = 0;
  /// The gradient of an input does not look at this input itself: where it alone is asked for, its value is
  /// not kept (products).
  bool crosswise = false;

  bool operator==(const GradientUses&) const = default;
};
/// For gradients that say nothing: all values are kept.
inline constexpr GradientUses kUsesAll{~uint64_t{0}, ~uint64_t{0}, false};

class GradientContext {
 public:
  /// `inputs` and `outputs` that are not used have their shape and type and no values; an empty handle among
  /// the inputs has those of head 0. `results`: one empty handle per input.
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

  /// Values. Throw InvalidState when the record does not say that they are used.
  const NDArray& input(size_t i) const;
  const NDArray& output(size_t i = 0) const;
  const Shape& input_shape(size_t i) const { return known(i).shape(); }
  DType input_dtype(size_t i) const { return known(i).dtype(); }

  /// d(loss)/d(output i). An empty handle when nothing depends on it, which is possible only where there are
  /// several outputs.
  const NDArray& head(size_t i = 0) const { return heads_[i]; }
  /// The same, zeros instead of an empty handle.
  NDArray head_or_zeros(size_t i) const;

  /// Is the gradient of input i asked for?
  bool wanted(size_t i) const { return wanted_[i] != 0; }
  /// Sets it. One of a shape that input i was broadcast to is summed, one of another floating-point type is
  /// converted. An input that is not set has a gradient of zero.
  void set(size_t i, const NDArray& gradient);

 private:
  const NDArray& known(size_t i) const { return inputs_[i].defined() ? inputs_[i] : heads_[0]; }

  const Operator& op_;
  const Attrs& attrs_;
  std::span<const NDArray> inputs_, outputs_, heads_;
  std::span<const uint8_t> wanted_;
  std::span<NDArray> results_;
};

/// The gradient of an operator whose derivative is zero wherever it has one (floor, sign).
void zero_gradient(GradientContext& g);

/// x summed over the dimensions in which `shape` was broadcast to x's shape. Throws InvalidArgument when it
/// was not.
NDArray sum_to(const NDArray& x, const Shape& shape);

namespace detail {
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// Zeros as a view of one element, for operators that begin with a copy of an array of zeros.
NDArray zeros_view(const Shape& shape, DType dtype, Context context);
}  // namespace detail

}  // namespace mx
