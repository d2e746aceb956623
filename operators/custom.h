// Operators defined by user code, inside or outside of this source tree.
//
//   struct Axpy : CustomOp {
//     double a = 1;                                   // attributes are members, listed in fields()
//     template <class V>
//     static void fields(V&& v) { v("a", &Axpy::a, "the factor of x"); }
//
//     static Operator record() { return {.kernel = {"axpy"}, .doc = "a * x + y.", .inputs = {"x", "y"}}; }
//     void infer(InferContext& c) const { c.output(c.shape(0), c.dtype(0)); }
//     void forward(const KernelArgs& args) const { ... }     // args.in, args.out: Tensors
//   };
//   NDArray z = custom<Axpy>({x, y}, {{"a", 2.0}});
//
// Members of the struct:
//   record()      returns the name, the documentation and the inputs. It may set other fields of Operator
//                 (outputs, updates, in_place, work, samples, dtypes, kernel.direct_work ...).
//   infer(c)      sets shapes and types of the outputs from those of the inputs; throws if they do not fit.
//   and one or more of
//   forward(args)       the kernel for the CPU and for virtual devices; runs in the engine, in any thread
//   forward_cuda(args)  the kernel for a GPU; enqueues on args.device->native_stream()
//   compose(inputs)     replaces kernels: makes std::vector<NDArray> from a span of NDArray by calling other
//                       operators; runs at the call, on any device
//   gradient(g)   sets d(loss)/d(input i) in a GradientContext; optional. It may read all inputs and
//                 outputs. If record() sets Operator::gradient_uses, only the listed values are kept.
// All are const: one object holds the attributes of one call and is copied with it.
//
// An exception of any type that leaves forward() or compose() becomes the error of the outputs. An exception
// that leaves infer() is thrown by the call, as InvalidArgument or as its own type. The first call, or
// register_custom<Op>(), puts the operator into the registry, where graphs and files find it by name.
#pragma once

#include <concepts>
#include <initializer_list>
#include <source_location>
#include <span>
#include <type_traits>
#include <vector>

#include "operators/operator.h"

namespace mx {

/// The base class of custom operators; it has no data members.
struct CustomOp {
  template <class V>
  static void fields(V&&) {}
};

namespace detail {

template <class Op>
concept HasForward = requires(const Op& op, const KernelArgs& args) {
  op.forward(args);
};
template <class Op>
concept HasCuda = requires(const Op& op, const KernelArgs& args) {
  op.forward_cuda(args);
};
template <class Op>
concept HasCompose = requires(const Op& op, std::span<const NDArray> inputs) {
  { op.compose(inputs) } -> std::convertible_to<std::vector<NDArray>>;
};
template <class Op>
concept HasGradient = requires(const Op& op, GradientContext& g) {
  op.gradient(g);
};

template <class Op>
Operator make_custom() {
  static_assert(std::derived_from<Op, CustomOp>);
  static_assert(std::is_default_constructible_v<Op> && std::is_copy_constructible_v<Op>);
  static_assert(
      requires {
        { Op::record() } -> std::same_as<Operator>;
      },
      "expected static Operator record()");
  static_assert(
      requires(const Op& op, InferContext& c) { op.infer(c); }, "expected void infer(InferContext&) const");
  static_assert(HasForward<Op> || HasCompose<Op>,
                "expected void forward(const KernelArgs&) const, "
                "or std::vector<NDArray> compose(std::span<const NDArray>) const");
  Operator op = Op::record();
  if (op.family[0] == '\0') op.family = "custom";
  op.attrs = &kAttrType<Op>;
  op.infer = [](InferContext& c) { c.template attr<Op>().infer(c); };
  if constexpr (HasForward<Op>)
    op.kernel.cpu = [](const KernelArgs& args) { args.template attr<Op>().forward(args); };
  if constexpr (HasCuda<Op>)
    op.kernel.cuda = [](const KernelArgs& args) { args.template attr<Op>().forward_cuda(args); };
  if constexpr (HasCompose<Op>) {
    op.compose = [](const Attrs& attrs, std::span<const NDArray> inputs) -> std::vector<NDArray> {
      return attrs.template get<Op>().compose(inputs);
    };
  }
  if constexpr (HasGradient<Op>) {
    op.gradient = [](GradientContext& g) { g.template attr<Op>().gradient(g); };
    if (op.gradient_uses == GradientUses{}) op.gradient_uses = kUsesAll;
    op.gradient_returns_fresh_arrays = false;
  }
  return op;
}

/// Returns the only output. Throws InvalidArgument if there are more.
NDArray only_output(const Operator& op, std::vector<NDArray> outputs);

}  // namespace detail

/// Returns the operator's record. The first call puts it into the registry, and throws InvalidArgument if
/// another operator has the same name.
template <class Op>
const Operator& register_custom() {
  static const Operator op = detail::make_custom<Op>();
  static const bool registered = (register_operator(op), true);
  (void)registered;
  return op;
}

/// Calls the operator with attributes by name. Attributes that are not named have the values of a
/// default-constructed Op. Throws InvalidArgument for an attribute of an unknown name or of the wrong type.
template <class Op>
std::vector<NDArray> custom_all(const std::vector<NDArray>& inputs, const AttrMap& attrs = {},
                                std::source_location where = std::source_location::current()) {
  const Operator& op = register_custom<Op>();
  return call(op, Attrs::from_map(op.attrs, attrs, op.name()), inputs, where);
}

/// The same for operators with one output.
template <class Op>
NDArray custom(const std::vector<NDArray>& inputs, const AttrMap& attrs = {},
               std::source_location where = std::source_location::current()) {
  return detail::only_output(register_custom<Op>(), custom_all<Op>(inputs, attrs, where));
}

}  // namespace mx
