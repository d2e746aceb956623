#include "operators/elementwise_custom.h"

#include <deque>
#include <mutex>
#include <string>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "operators/elementwise_binary.h"
#include "operators/gradient.h"

namespace mx {
namespace {

void infer_with_number(InferContext& c, bool predicate) {
  const DType type = promote_weak(c.dtype(0), c.attr<NumberAttrs>().number.category());
  c.output(c.shape(0), predicate ? bool_ : is_floating(type) ? type : f32);
}

/// A record that is made while the program runs, with the texts that it refers to.
struct KeptOperator {
  std::string name, doc;
  Operator op;
};

}  // namespace

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

std::vector<Sample> detail::number_samples() {
  const NDArray x = array({{1.5f, 2.f, 0.25f}, {3.f, 0.5f, 2.25f}});
  return {{{x}, NumberAttrs{2.5}, "number=2.5"},
          {{x.transpose()}, NumberAttrs{3.2, true}, "number on the left, transposed"},
          {{x}, NumberAttrs{4}, "number=4"}};
}

NDArray detail::number_beside(const NDArray& x, const Scalar& number) {
  const DType type = promote(x.dtype(), f32);
  if (fits(number, type)) return scalar_array(number, type, x.context());
  return scalar_array(number.real() < 0 ? -detail::kInfinity : detail::kInfinity, type, x.context());
}

const Operator& detail::keep_number_form(const Operator& op, bool predicate,
                                         void (*kernel)(const KernelArgs&),
                                         void (*gradient)(GradientContext&)) {
  static std::mutex mutex;
  static auto* const kept = new std::deque<KeptOperator>;  // never destroyed: records outlive static objects
  const std::lock_guard lock(mutex);
  KeptOperator& form = kept->emplace_back();
  form.name = std::string(op.name()) + "_scalar";
  form.doc = std::string(op.doc) + " One operand is a number.";
  form.op.kernel = {form.name.c_str(), kernel, nullptr, op.kernel.direct_work};
  form.op.doc = form.doc.c_str();
  form.op.family = "scalar";
  form.op.inputs = {"x"};
  form.op.attrs = &kAttrType<NumberAttrs>;
  form.op.infer = predicate ? +[](InferContext& c) { infer_with_number(c, true); }
                            : +[](InferContext& c) { infer_with_number(c, false); };
  form.op.gradient = gradient;
  form.op.gradient_uses = {.inputs = bit_set(0)};
  form.op.samples = number_samples;
  form.op.dtypes = op.dtypes;
  form.op.in_place = predicate ? 0 : 1;
  form.op.elementwise = true;
  return form.op;
}

NDArray call_binary(const Operator& op, const Operand& a, const Operand& b) try {
  if (a.is_array() && b.is_array()) return call(op, {}, {a.array(), a.where()}, b.array());
  MX_CHECK(a.is_array() || b.is_array(), InvalidArgument, "[", op.name(),
           "] expected an array among the operands, got two numbers");
  const bool left = b.is_array();
  const Scalar& number = (left ? a : b).number();
  MX_CHECK(op.number_form != nullptr, InvalidArgument, "[", op.name(),
           "] expected two arrays, because the operator has no form with a number, got the number ", number);
  return call(*op.number_form, NumberAttrs{number, left}, {(left ? b : a).array(), a.where()});
} catch (const Error&) {
  detail::rethrow_at(a.where());
}

}  // namespace mx
