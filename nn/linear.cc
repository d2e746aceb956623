#include "nn/linear.h"

#include <cmath>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "nn/detail/call_site.h"
#include "nn/init.h"
#include "operators/matmul.h"

namespace mx::nn {
namespace {

NDArray new_weight(int64_t in, int64_t out, const LinearOptions& options) {
  MX_CHECK(in >= 0 && out >= 0, InvalidArgument, "[Linear] expected sizes of 0 or more, got in = ", in,
           " and out = ", out);
  MX_CHECK(is_floating(options.dtype), InvalidArgument, "[Linear] expected a floating-point type, got ",
           options.dtype);
  return empty({out, in}, options.dtype, options.context);
}

}  // namespace

Linear::Linear(IntArg in, IntArg out, const LinearOptions& options, std::source_location where) try
    : weight(add_parameter("weight", new_weight(in, out, options))) {
  if (options.bias) bias = add_parameter("bias", empty({out}, options.dtype, options.context));
  reset_parameters();
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

NDArray Linear::forward(const NDArray& x) {
  const Arg input = detail::at_call(x);
  return bias.defined() ? linear(input, weight, bias) : linear(input, weight);
}

void Linear::reset_parameters(Generator* generator) {
  init::kaiming_uniform_(weight, {.a = std::sqrt(5.0)}, generator);
  if (!bias.defined()) return;
  const double bound = in_features() > 0 ? 1 / std::sqrt(static_cast<double>(in_features())) : 0;
  init::uniform_(bias, -bound, bound, generator);
}

std::string Linear::extra() const {
  return mx::detail::concat("in=", in_features(), ", out=", out_features(),
                            bias.defined() ? "" : ", bias=false");
}

}  // namespace mx::nn
