#include "operators/elementwise_binary.h"
#include "operators/kernels/unary.h"
#include "operators/samples/table.h"

namespace mx::detail {
namespace {

using kernels::UnaryOp;

enum class Range { unit, above_one, below_zero };

/// Returns true if the function is differentiable at the sample's elements, which are in that range.
bool smooth_unary(UnaryOp op, Range range) {
  switch (op) {
    case UnaryOp::acosh:
      return range == Range::above_one;
    case UnaryOp::asin:
    case UnaryOp::acos:
    case UnaryOp::atanh:
      return range != Range::above_one;
    case UnaryOp::log:
    case UnaryOp::log2:
    case UnaryOp::log10:
    case UnaryOp::sqrt:
    case UnaryOp::rsqrt:
      return range != Range::below_zero;
    case UnaryOp::round:
      return range == Range::below_zero;  // the others have ties
    default:
      return true;
  }
}

// The elements of x are in the domain of most of these functions. acosh is only defined for the sample above
// 1; asin, acos and atanh are only defined for the others.
std::vector<Sample> samples_unary(UnaryOp op) {
  // Operators that do not take floating point get integers.
  const bool whole = !kernels::unary_supports(op, f32);
  const NDArray x = array({{0.75f, 0.3f, 0.5f}, {0.9f, 0.15f, 0.6f}});
  const auto typed = [&](const NDArray& a) { return whole ? (a * 100.f).to(i32) : a; };
  return {{{typed(x)}, {}, "a matrix", smooth_unary(op, Range::unit)},
          {{typed(x).transpose()}, {}, "transposed", smooth_unary(op, Range::unit)},
          {{typed(x + 1.f)}, {}, "above 1", smooth_unary(op, Range::above_one)},
          {{typed(x - 1.f)[1]}, {}, "below 0", smooth_unary(op, Range::below_zero)}};
}

}  // namespace

void add_elementwise_unary_samples(SampleTable& table) {
  for (int i = 0; i < kernels::kUnaryOps; ++i) {
    const auto op = static_cast<UnaryOp>(i);
    table[kernels::to_string(op)] = [op] { return samples_unary(op); };
  }
}

}  // namespace mx::detail
