// Operators from user code, inside the tree or outside.
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
// What the struct has:
//   record()      the name, the documentation, the inputs; and whatever else of Operator it wants to say
//                 (outputs, updates, in_place, work, samples, dtypes, kernel.direct_work ...).
//   infer(c)      shapes and types of the outputs, from those of the inputs; throws for what does not fit.
//   and one or more of
//   forward(args)       a kernel of the CPU and of virtual devices; runs in the engine, in any thread
//   forward_cuda(args)  a kernel of a GPU, which enqueues on args.device->native_stream()
//   compose(inputs)     instead of kernels: std::vector<NDArray> from a span of NDArray, by calling other
//                       operators; runs at the call, on any device
//   gradient(g)   sets d(loss)/d(input i) in a GradientContext; may be left out. It may look at all inputs
//   and
//                 outputs; record() can say which it needs (Operator::gradient_uses), and others are not
//                 kept.
// All are const: one object holds the attributes of one call and is copied with it.
//
// An exception of any type out of forward() or compose() becomes the error of the outputs, one out of infer()
// is thrown by the call as InvalidArgument or what it was. The operator is in the registry, with the name,
// from its first call on, or from register_custom<Op>() on: graphs and files find it there.
#pragma once

#include <concepts>
#include <initializer_list>
#include <source_location>
#include <span>
#include <type_traits>
#include <vector>

#include "operators/operator.h"

namespace mx {

/// The base of all of them; without members of its own.
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
    op.gradient_gives_new = false;
  }
  return op;
}

/// The only output; throws InvalidArgument when there are others.
NDArray only_output(const Operator& op, std::vector<NDArray> outputs);

}  // namespace detail

/// The operator's record, put into the registry now if it is not there yet. Throws InvalidArgument when
/// another operator has the name.
template <class Op>
const Operator& register_custom() {
  static const Operator op = detail::make_custom<Op>();
  static const bool registered = (register_operator(op), true);
  (void)registered;
  return op;
}

/// Calls it with attributes by name; those that are not named have the values of a default-constructed Op.
/// Throws InvalidArgument for names and types of attributes that it does not have.
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
