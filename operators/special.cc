#include "operators/special.h"

#include <cmath>
#include <numeric>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "ndarray/kernels/strided_loop.h"
#include "operators/cuda_kernels.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_custom.h"
#include "operators/elementwise_unary.h"
#include "operators/kernels/normal_quantile.h"
#include "operators/select.h"
#include "operators/special_formulas.h"
#include "operators/temporary.h"

namespace mx {
namespace {

// Records

const Operator& erfinv_record() {
  static const Operator op = [] {
    Operator made = unary_operator(
        "erfinv", "Inverse of the error function.",
        [](auto x) { return static_cast<decltype(x)>(kernels::erf_inverse(static_cast<double>(x))); },
        // The derivative: sqrt(pi) / 2 * exp(y^2).
        [](const NDArray& x) { return exp(square(erfinv(x))) * 0.88622692545275801; });
    made.kernel.cuda = cuda::erfinv;
    made.samples = [] {
      const NDArray x = array({{0.75f, -0.3f, 0.5f}, {-0.9f, 0.015625f, 0.6f}});
      return std::vector<Sample>{
          {{x}, {}, "a matrix"}, {{x.transpose()}, {}, "transposed"}, {{x[0][1]}, {}, "a number"}};
    };
    return made;
  }();
  return op;
}

const Operator& logit_record() {
  static const Operator op = [] {
    Operator made = unary_operator(
        "logit", "Log-odds of a probability, log(x / (1 - x)).", [](auto x) { return formulas::logit(x); },
        [](const NDArray& x) { return reciprocal(x * (1 - x)); });
    made.kernel.cuda = cuda::logit;
    made.samples = [] {
      const NDArray x = array({{0.75f, 0.3f, 0.5f}, {0.0625f, 0.9f, 0.6f}});
      return std::vector<Sample>{
          {{x}, {}, "a matrix"}, {{x.transpose()}, {}, "transposed"}, {{x[0][1]}, {}, "a number"}};
    };
    return made;
  }();
  return op;
}

const Operator& xlogy_record() {
  static const Operator op = [] {
    Operator made = binary_operator(
        "xlogy", "Product a * log(b); 0 where a is 0 and b is not NaN.",
        [](auto x, auto y) { return formulas::xlogy(x, y); },
        // For a = 0 and b <= 0 the derivative in a does not exist; it is set to 0, as in PyTorch.
        [](const NDArray& x, const NDArray& y) {
          const NDArray none = logical_and(x == 0, y <= 0);
          return mx::where(none, 0, log(mx::where(none, 1, y)));
        },
        [](const NDArray& x, const NDArray& y) { return x / y; });
    made.kernel.cuda = cuda::xlogy;
    static Operator with_number = *made.number_form;
    with_number.kernel.cuda = cuda::xlogy_scalar;
    made.number_form = &with_number;
    made.samples = [] {
      const NDArray x = array({{1.5f, -2.f, 0.25f}, {3.f, -0.5f, 2.f}});
      const NDArray y = array({{2.f, 1.f, 1.5f}, {0.5f, 4.f, 3.f}});
      return std::vector<Sample>{{{x, y}, {}, "same shape"},
                                 {{x, y[0]}, {}, "a row beside a matrix"},
                                 {{x.transpose(), y.transpose()}, {}, "transposed"},
                                 {{x, y[1][1]}, {}, "a number"}};
    };
    return made;
  }();
  return op;
}

/// Returns |value|, unsigned, because the magnitude of the smallest signed integer does not fit the signed
/// type.
template <class T>
uint64_t magnitude(T value) {
  return value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
}

struct GreatestDivisor {
  static uint64_t of(uint64_t a, uint64_t b) { return std::gcd(a, b); }
};
struct LeastMultiple {
  static uint64_t of(uint64_t a, uint64_t b) { return a == 0 || b == 0 ? 0 : a / std::gcd(a, b) * b; }
};

void infer_whole(InferContext& c) {
  const DType type = promote(c.dtype(0), c.dtype(1));
  MX_CHECK(is_integral(c.dtype(0)) && is_integral(c.dtype(1)), InvalidArgument, "[", c.name(),
           "] expected integers, got ", c.dtype(0), " and ", c.dtype(1));
  c.output(broadcast_shapes(c.shape(0), c.shape(1), c.name()), type);
}

void infer_whole_number(InferContext& c) {
  const Scalar& number = c.attr<NumberAttrs>().number;
  MX_CHECK(is_integral(c.dtype(0)) && is_integral(number.category()), InvalidArgument, "[", c.name(),
           "] expected integers, got ", c.dtype(0), " and the number ", number);
  check_fits(number, c.dtype(0), c.name());
  c.output(c.shape(0), c.dtype(0));
}

/// Sets out = F::of(x, y), element by element. Precondition: all have the same shape and type.
template <class F>
void run_whole(const Tensor& out, const Tensor& x, const Tensor& y) {
  const kernels::LoopPlan<3> plan({&out, &x, &y});
  visit(out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      const auto body = [&](const int64_t* at, int64_t n) {
        T* const to = out.as<T>() + at[0];
        const T *const p = x.template as<const T>() + at[1], *const q = y.template as<const T>() + at[2];
        for (int64_t i = 0; i < n; ++i)
          to[i * plan.strides[0][0]] = static_cast<T>(
              F::of(magnitude(p[i * plan.strides[1][0]]), magnitude(q[i * plan.strides[2][0]])));
      };
      kernels::parallel_runs<3>(plan, body, kernels::kLoopGrain / 32);
    }
  });
}

template <class F>
void run_whole_arrays(const KernelArgs& args) {
  const Tensor& out = args.out[0];
  if (out.numel() == 0) return;
  const detail::Converted a(args.in[0], out.dtype), b(args.in[1], out.dtype);
  run_whole<F>(out, a->broadcast(out.shape), b->broadcast(out.shape));
}

// The functions are symmetric, so it does not matter on which side the number stands.
template <class F>
void run_whole_number(const KernelArgs& args) {
  const Tensor& out = args.out[0];
  if (out.numel() == 0) return;
  const kernels::Element number(args.attr<NumberAttrs>().number, out.dtype, out.shape);
  run_whole<F>(out, args.in[0], *number);
}

std::vector<Sample> samples_whole() {
  const NDArray x = array<int64_t>({{12, -18, 0}, {7, 30, 64}}),
                y = array<int64_t>({{8, 12, 5}, {-21, 45, 96}});
  return {{{x, y}, {}, "same shape"},
          {{x, y[0]}, {}, "a row beside a matrix"},
          {{x.transpose(), y.transpose()}, {}, "transposed"},
          {{x, y[1][1]}, {}, "a number"}};
}

std::vector<Sample> samples_whole_number() {
  const NDArray x = array<int64_t>({{12, -18, 0}, {7, 30, 64}});
  return {{{x}, NumberAttrs{12}, "number=12"}, {{x.transpose()}, NumberAttrs{18, true}, "number=18, left"}};
}

template <class F>
constexpr Operator whole_number_operator(const char* name, KernelFn on_gpu, const char* doc) {
  return {.kernel = {name, run_whole_number<F>, on_gpu, 64},
          .doc = doc,
          .family = "scalar",
          .inputs = {"x"},
          .attrs = &kAttrType<NumberAttrs>,
          .infer = infer_whole_number,
          .samples = samples_whole_number,
          .dtypes = {i8, u8, i32, i64},
          .in_place = bit_set(0),
          .elementwise = true};
}

template <class F>
constexpr Operator whole_operator(const char* name, KernelFn on_gpu, const char* doc,
                                  const Operator* number_form) {
  return {.kernel = {name, run_whole_arrays<F>, on_gpu, 64},
          .doc = doc,
          .family = "elementwise",
          .inputs = {"a", "b"},
          .infer = infer_whole,
          .samples = samples_whole,
          .dtypes = {i8, u8, i32, i64},
          .in_place = bit_set(0, 1),
          .elementwise = true,
          .number_form = number_form};
}

constexpr Operator kGcdNumber = whole_number_operator<GreatestDivisor>(
    "gcd_scalar", cuda::gcd_scalar, "The greatest common divisor; of 0 and 0: 0. One operand is a number.");
constexpr Operator kLcmNumber = whole_number_operator<LeastMultiple>(
    "lcm_scalar", cuda::lcm_scalar, "The least common multiple; 0 if one is 0. One operand is a number.");
constexpr Operator kGcd = whole_operator<GreatestDivisor>(
    "gcd", cuda::gcd, "Greatest common divisor of integers; 0 if both are 0.", &kGcdNumber);
constexpr Operator kLcm = whole_operator<LeastMultiple>(
    "lcm", cuda::lcm, "Least common multiple of integers; 0 if one of them is 0.", &kLcmNumber);

/// Rounds integers to the nearest multiple of 10^digits, ties to the even multiple.
NDArray rounded_integers(const Arg& x, int64_t digits) {
  int64_t unit = 1;
  for (int64_t i = 0; i < digits; ++i) unit *= 10;
  const NDArray wide = x.array.to(i64, x.where);
  const NDArray count = floor_div({wide, x.where}, unit);
  const NDArray rest = wide - count * unit;
  const NDArray odd = bitwise_and(count, int64_t{1}) == 1;
  const NDArray up = logical_or(rest > unit / 2, logical_and(rest == unit / 2, odd));
  return mul({count + up.to(i64), x.where}, unit).to(x.array.dtype(), x.where);
}

}  // namespace

namespace detail {
OperatorFamily family_special() { return {&erfinv_record(), &logit_record(), &xlogy_record(), &kGcd, &kLcm}; }
}  // namespace detail

NDArray erfinv(const Arg& x) { return call(erfinv_record(), {}, x); }

NDArray logit(const Arg& x, std::optional<double> eps) try {
  if (!eps) return call(logit_record(), {}, x);
  MX_CHECK(*eps >= 0 && *eps <= 0.5, InvalidArgument, "[logit] expected an eps from 0 to 0.5, got ", *eps);
  // The gradient of clamp() is 0 at the limits. That of logit() is not: at eps and 1 - eps it is x's.
  const NDArray limited = clamp({x.array.detach(), x.where}, *eps, 1 - *eps);
  return call(logit_record(), {}, {where({limited == x.array, x.where}, x.array, limited), x.where});
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

NDArray xlogy(const Operand& x, const Operand& y) { return call_binary(xlogy_record(), x, y); }
NDArray gcd(const Operand& a, const Operand& b) { return call_binary(kGcd, a, b); }
NDArray lcm(const Operand& a, const Operand& b) { return call_binary(kLcm, a, b); }

NDArray round(const Arg& x, IntArg decimals) try {
  const DType type = x.array.dtype();
  if (!is_floating(type)) {
    MX_CHECK(decimals >= -18, InvalidArgument, "[round] expected decimals of -18 or more for integers, got ",
             decimals);
    return decimals >= 0 ? x.array : rounded_integers(x, -decimals);
  }
  const NDArray wide = x.array.to(promote(type, f32), x.where);
  // For more decimals than `most`, 10^|decimals| is not finite in the type. Then no number has such decimals,
  // or for negative decimals all finite numbers round to 0.
  const int64_t most = wide.dtype() == f64 ? 308 : 38;
  if (decimals > most) return x.array;
  if (decimals < -most) return mx::where({isfinite(x), x.where}, 0, x.array.detach());
  // 10^-n is not exact in binary, but 10^n is, up to 10^22. So it divides by 10^n instead of multiplying by
  // 10^-n.
  const double unit = std::pow(10.0, std::abs(static_cast<double>(decimals)));
  const NDArray scaled = decimals < 0 ? wide / unit : wide * unit;
  const NDArray whole = round(Arg(scaled, x.where));
  const NDArray result = decimals < 0 ? whole * unit : whole / unit;
  return mx::where({isfinite({scaled, x.where}), x.where}, result, wide.detach()).to(type, x.where);
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

NDArray nan_to_num(const Arg& x, const NanToNumOptions& options) {
  const DType type = x.array.dtype();
  if (!is_floating(type)) return x.array;
  const double largest = visit(type, [](auto tag) -> double {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_floating_point_v<T>) {
      return static_cast<double>(std::numeric_limits<T>::max());
    } else {
      return std::is_same_v<T, float16> ? 65504.0 : 0x1.fep127;
    }
  });
  NDArray result = mx::where({isnan(x), x.where}, options.nan, x.array);
  const NDArray infinite = isinf(x), negative = signbit(x);
  result = mx::where({logical_and({infinite, x.where}, logical_not(negative)), x.where},
                     options.posinf.value_or(largest), result);
  return mx::where({logical_and({infinite, x.where}, negative), x.where}, options.neginf.value_or(-largest),
                   result);
}

}  // namespace mx
