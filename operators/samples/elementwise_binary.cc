#include <string>
#include <vector>

#include "operators/kernels/binary.h"
#include "operators/number.h"
#include "operators/samples/table.h"

namespace mx::detail {
namespace {

using kernels::BinaryOp;

/// Returns true if the function is differentiable in both operands at the sample of that number.
bool smooth_binary(BinaryOp op, int sample) {
  switch (op) {
    case BinaryOp::floor_div:
    case BinaryOp::mod:
    case BinaryOp::fmod:
      return sample == 3;  // in the others some quotients are integers
    case BinaryOp::maximum:
    case BinaryOp::minimum:
    case BinaryOp::fmax:
    case BinaryOp::fmin:
      return sample != 2;  // it has equal operands
    case BinaryOp::pow:
      return false;  // some bases are negative
    default:
      return true;
  }
}

std::vector<Sample> samples_binary(BinaryOp op) {
  // Operators that do not take floating point get integers.
  const DType dtype = kernels::binary_supports(op, f32) ? f32 : i32;
  const NDArray y = array({{2.f, 1.f, -1.5f}, {0.5f, 4.f, -3.f}}).to(dtype);
  const NDArray column = array({{3.f}, {2.f}, {-1.f}}).to(dtype);
  const NDArray inside = array({{0.75f, 0.3f, 0.5f}, {0.9f, 0.15f, 0.6f}});
  NDArray x = array({{1.5f, -2.f, 0.25f}, {3.f, -0.5f, 2.f}}).to(dtype);
  if (op == BinaryOp::binary_cross_entropy) x = inside;
  std::vector<Sample> list = {
      {{x, y}, {}, "same shape", smooth_binary(op, 0)},
      {{x, y[0]}, {}, "a row beside a matrix", smooth_binary(op, 1)},
      {{x.transpose(), column}, {}, "a transposed matrix and a column", smooth_binary(op, 2)},
      {{x, full({}, 2.5, dtype)}, {}, "a number", smooth_binary(op, 3)}};
  if (op == BinaryOp::pow) {
    list.push_back({{inside, y}, {}, "positive bases"});
    list.push_back({{inside[0], column}, {}, "a row of positive bases and a column"});
  }
  return list;
}

std::vector<Sample> samples_number(BinaryOp op) {
  const DType dtype = kernels::binary_supports(op, f32) ? f32 : i32;
  NDArray x = array({{1.5f, -2.f, 0.25f}, {3.f, -0.5f, 2.f}}).to(dtype);
  if (dtype == i32)
    return {{{x}, NumberAttrs{2}, "number=2"}, {{x.transpose()}, NumberAttrs{3, true}, "number=3, left"}};
  if (op == BinaryOp::pow || op == BinaryOp::binary_cross_entropy)
    x = array({{0.75f, 0.3f, 0.5f}, {0.9f, 0.15f, 0.6f}});
  // With these numbers no quotient is an integer and no element equals the number, except for the number 3.
  const double left = op == BinaryOp::binary_cross_entropy ? 0.2 : 3.2;
  std::vector<Sample> list = {
      {{x}, NumberAttrs{2.5}, "number=2.5"},
      {{x.transpose()}, NumberAttrs{left, true}, "number on the left, transposed"},
      {{x}, NumberAttrs{3}, "number=3", smooth_binary(op, 2) && smooth_binary(op, 0)}};
  if (op == BinaryOp::pow)
    for (const Scalar& exponent : {Scalar(0), Scalar(1), Scalar(2), Scalar(3), Scalar(4), Scalar(0.5),
                                   Scalar(1.5), Scalar(-0.5), Scalar(-1.), Scalar(-2.)})
      list.push_back({{x}, NumberAttrs{exponent}, "exponent " + to_string(exponent)});
  return list;
}

}  // namespace

void add_elementwise_binary_samples(SampleTable& table) {
  for (int i = 0; i < kernels::kBinaryOps; ++i) {
    const auto op = static_cast<BinaryOp>(i);
    table[kernels::to_string(op)] = [op] { return samples_binary(op); };
    table[std::string(kernels::to_string(op)) + "_scalar"] = [op] { return samples_number(op); };
  }
}

}  // namespace mx::detail
