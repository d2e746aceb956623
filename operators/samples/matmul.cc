#include "operators/matmul.h"
#include "operators/elementwise_binary.h"
#include "operators/samples/table.h"

namespace mx::detail {
namespace {

NDArray ramp(const Shape& shape, double start = -1.25) {
  return (arange(0., static_cast<double>(shape.numel())) * 0.25f + start).reshape(shape);
}

std::vector<Sample> samples_matmul() {
  const NDArray a = ramp({2, 3}), b = ramp({3, 4}), stack = ramp({2, 3, 4}, -2);
  return {{{a, b}, {}, "(2, 3) and (3, 4)"},
          {{b.transpose(), a.transpose()}, {}, "both transposed"},
          {{a, b.select(1, 0)}, {}, "a matrix and a vector"},
          {{a.select(0, 1), b}, {}, "a vector and a matrix"},
          {{a.select(0, 0), b.select(1, 2)}, {}, "two vectors"},
          {{a, stack}, {}, "a matrix and a stack"},
          {{stack, ramp({4, 2})}, {}, "a stack and a matrix"},
          {{ramp({3, 1, 2, 3}), stack}, {}, "stacks that broadcast"}};
}

std::vector<Sample> samples_matmul_i32() {
  const NDArray a = arange(6).to(i8).reshape({2, 3}), b = arange(12).to(i8).reshape({3, 4}),
                stack = arange(24).to(i8).reshape({2, 3, 4});
  return {{{a, b}, {}, "(2, 3) and (3, 4)"},
          {{b.transpose(), a.transpose()}, {}, "both transposed"},
          {{a, b.select(1, 0)}, {}, "a matrix and a vector"},
          {{a, stack}, {}, "a matrix and a stack"}};
}

std::vector<Sample> samples_dot() { return {{{ramp({5}), ramp({5}, 0.5)}, {}, "5 elements"}}; }

std::vector<Sample> samples_linear() {
  const NDArray x = ramp({2, 3}), weight = ramp({4, 3}), bias = ramp({4}, 1);
  return {{{x, weight, bias}, {}, "with a bias"},
          {{x, weight}, {}, "without a bias"},
          {{ramp({2, 2, 3}), weight, bias}, {}, "x of rank 3"},
          {{x.select(0, 1), weight, bias}, {}, "a vector"},
          {{ramp({3, 2}).transpose(), ramp({3, 4}).transpose(), bias}, {}, "transposed operands"}};
}

std::vector<Sample> samples_addmm() {
  const NDArray a = ramp({2, 3}), b = ramp({3, 4}), c = ramp({2, 4});
  return {{{c, a, b}, AddmmAttrs{}, "c of (2, 4)"},
          {{c.select(0, 0), a, b}, AddmmAttrs{0.5, 2}, "a row for c, alpha=0.5, beta=2"},
          {{c, a, b}, AddmmAttrs{-1, 0}, "beta=0"}};
}

}  // namespace

void add_matmul_samples(SampleTable& table) {
  table["matmul"] = samples_matmul;
  table["matmul_i32"] = samples_matmul_i32;
  table["dot"] = samples_dot;
  table["linear"] = samples_linear;
  table["addmm"] = samples_addmm;
}

}  // namespace mx::detail
