// where and clamp.
#include "operators/cuda/pointwise.cuh"
#include "operators/formulas.h"
#include "operators/select_attrs.h"

namespace mx::cuda {
namespace {

// An operand of which the elements are moved as bits; a number has no memory.
template <class Bits>
struct Choice {
  const Bits* data;
  Bits number;
};

template <class Bits>
__global__ void choose(Bits* to, const uint8_t* condition, Choice<Bits> a, Choice<Bits> b, Loop<4> loop) {
  for (int64_t i = global_index(); i < loop.plan.numel; i += global_size()) {
    int64_t at[4];
    element_offsets(loop.plan, loop.narrow, i, at);
    const bool first = condition[at[1]] != 0;
    const Bits* const from = first ? a.data : b.data;
    to[at[0]] = from != nullptr ? from[first ? at[2] : at[3]] : first ? a.number : b.number;
  }
}

// The elements of an operand in the type of the result, converted if necessary; without an array, the number.
class Side {
 public:
  Side(const KernelArgs& args, const Tensor* array, const Scalar& number) : number_(number) {
    const Tensor& out = args.out[0];
    tensor_ = {nullptr, out.dtype, out.shape, Strides::filled(out.rank(), 0)};
    if (array == nullptr) return;
    tensor_ = array->broadcast(out.shape);
    if (array->dtype == out.dtype) return;
    memory_.emplace(args, static_cast<size_t>(array->numel()) * size_of(out.dtype));
    const Tensor made{memory_->data(), out.dtype, array->shape, contiguous_strides(array->shape)};
    copy_elements(stream_of(args), made, *array);
    tensor_ = made.broadcast(out.shape);
  }
  const Tensor& tensor() const { return tensor_; }
  template <class Bits>
  Choice<Bits> choice() const {
    Choice<Bits> result{tensor_.as<Bits>(), {}};
    visit(tensor_.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const T value = number_.to<T>();
      if constexpr (sizeof(T) == sizeof(Bits)) std::memcpy(&result.number, &value, sizeof value);
    });
    return result;
  }

 private:
  Scalar number_;
  std::optional<Scratch> memory_;
  Tensor tensor_;
};

void run_where(const KernelArgs& args, const Side& a, const Side& b) {
  const Tensor& out = args.out[0];
  const Tensor& given = args.in[0];
  Tensor condition = given.broadcast(out.shape);
  std::optional<Scratch> memory;
  if (given.dtype != DType::bool_ && given.numel() > 0) {
    memory.emplace(args, static_cast<size_t>(given.numel()));
    const Tensor made{memory->data(), DType::bool_, given.shape, contiguous_strides(given.shape)};
    copy_elements(stream_of(args), made, given);
    condition = made.broadcast(out.shape);
  }
  const Loop<4> loop({&out, &condition, &a.tensor(), &b.tensor()});
  if (loop.empty()) return;
  visit_size(out.dtype, [&](auto size) {
    using Bits = typename decltype(size)::type;
    launch(stream_of(args), blocks_for(loop.plan.numel, kLoopThreads, 1 << 16), kLoopThreads, 0, choose<Bits>,
           out.as<Bits>(), static_cast<const uint8_t*>(condition.as<uint8_t>()), a.choice<Bits>(),
           b.choice<Bits>(), loop);
  });
}

struct ClampFormula {
  template <class A>
  __device__ A operator()(A x, A low, A high) const {
    return formulas::minimum(formulas::maximum(x, low), high);
  }
};

// The limits are arrays or, where there is none, numbers.
void run_clamp(const KernelArgs& args, const Tensor* low, const Tensor* high, const Scalar& least,
               const Scalar& most) {
  const Tensor& out = args.out[0];
  const auto run = [&](auto computing) {
    using A = decltype(computing);
    const Converted<A> x(args, args.in[0], out.shape);
    const Converted<A> from = low != nullptr ? Converted<A>(args, *low, out.shape) : Converted<A>(out.shape);
    const Converted<A> to = high != nullptr ? Converted<A>(args, *high, out.shape) : Converted<A>(out.shape);
    // The limits in the type of the elements; f16 and bf16 are compared as floats.
    const auto number = [&](const Scalar& value) {
      return visit(out.dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        if constexpr (sizeof(T) == 2) {
          return static_cast<A>(value.to<float>());
        } else {
          return static_cast<A>(value.to<T>());
        }
      });
    };
    map<A, 3>(args, out, {&x.tensor(), &from.tensor(), &to.tensor()}, {A{}, number(least), number(most)},
              ClampFormula());
  };
  if (!is_floating(out.dtype)) return run(int64_t{});
  out.dtype == DType::f64 ? run(double{}) : run(float{});
}

}  // namespace

void where(const KernelArgs& args) {
  run_where(args, Side(args, &args.in[1], 0), Side(args, &args.in[2], 0));
}

void where_scalar(const KernelArgs& args) {
  const auto& numbers = args.attr<detail::WhereNumbers>();
  run_where(args, Side(args, numbers.a ? nullptr : &args.in[1], numbers.a.value_or(0)),
            Side(args, numbers.b ? nullptr : &args.in[1], numbers.b.value_or(0)));
}

void clamp(const KernelArgs& args) { run_clamp(args, &args.in[1], &args.in[2], 0, 0); }

void clamp_scalar(const KernelArgs& args) {
  const auto& limits = args.attr<detail::ClampNumbers>();
  const DType type = args.out[0].dtype;
  const double infinity = std::numeric_limits<double>::infinity();
  const Scalar least = is_floating(type) ? Scalar(-infinity) : Scalar(INT64_MIN);
  const Scalar most = is_floating(type) ? Scalar(infinity) : Scalar(INT64_MAX);
  const Tensor* const limit = args.in.size() > 1 ? &args.in[1] : nullptr;
  run_clamp(args, limits.low ? nullptr : limit, limits.high ? nullptr : limit, limits.low.value_or(least),
            limits.high.value_or(most));
}

}  // namespace mx::cuda
