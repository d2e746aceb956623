#include "operators/elementwise_custom.h"

#include "operators/elementwise_binary.h"

namespace mx {

detail::Vectors detail::widest_vectors() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    return Vectors::avx512;
  if (__builtin_cpu_supports("avx2")) return Vectors::avx2;
#endif
  return Vectors::baseline;
}

DType detail::computing_type(const InferContext& c) {
  DType type = c.dtype(0);
  for (size_t i = 1; i < c.inputs(); ++i) type = promote(type, c.dtype(i));
  return is_floating(type) ? type : f32;
}

void detail::infer_elementwise(InferContext& c, bool predicate) {
  Shape shape = c.shape(0);
  for (size_t i = 1; i < c.inputs(); ++i) shape = broadcast_shapes(shape, c.shape(i), c.name());
  c.output(shape, predicate ? bool_ : computing_type(c));
}

void detail::set_product(GradientContext& g, size_t i, const NDArray& derivative) {
  g.set(i, g.head() * derivative);
}

std::vector<Sample> detail::unary_samples() {
  const NDArray x = array({{0.75f, -0.3f, 0.5f}, {-0.9f, 2.5f, 0.6f}});
  return {{{x}, {}, "a matrix"}, {{x.transpose()}, {}, "transposed"}, {{x[1][2]}, {}, "a number"}};
}

std::vector<Sample> detail::binary_samples() {
  const NDArray x = array({{1.5f, -2.f, 0.25f}, {3.f, -0.5f, 2.f}});
  const NDArray y = array({{2.f, 1.f, -1.5f}, {0.5f, 4.f, -3.f}});
  return {{{x, y}, {}, "same shape"},
          {{x, y[0]}, {}, "a row beside a matrix"},
          {{x.transpose(), y.transpose()}, {}, "transposed"},
          {{x, y[1][1]}, {}, "a number"}};
}

NDArray call_binary(const Operator& op, const Operand& a, const Operand& b) {
  if (a.is_array() && b.is_array()) return call(op, {}, {a.array(), a.where()}, b.array());
  return call(op, {}, {a.with(b, op.name()), a.where()}, b.with(a, op.name()));
}

}  // namespace mx
