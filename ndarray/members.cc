// Members of NDArray that call functions of operators/, through the table that the operators layer fills.
#include "ndarray/members.h"

#include "engine/base/check.h"
#include "ndarray/hooks.h"

namespace mx {
namespace {

const detail::MemberFunctions& functions(const char* name) {
  const detail::MemberFunctions* const table = detail::hooks().members;
  MX_CHECK(table != nullptr, InvalidState, "[", name,
           "] expected a program with the operators, got one without; include operators/operators.h and link "
           "mx::operators");
  return *table;
}

}  // namespace

NDArray NDArray::sum(const Axes& axes, bool keep_dims, std::optional<DType> dtype,
                     std::source_location where) const {
  return functions("sum").sum({*this, where}, axes, keep_dims, dtype);
}
NDArray NDArray::prod(const Axes& axes, bool keep_dims, std::optional<DType> dtype,
                      std::source_location where) const {
  return functions("prod").prod({*this, where}, axes, keep_dims, dtype);
}
NDArray NDArray::mean(const Axes& axes, bool keep_dims, std::optional<DType> dtype,
                      std::source_location where) const {
  return functions("mean").mean({*this, where}, axes, keep_dims, dtype);
}
NDArray NDArray::max(const Axes& axes, bool keep_dims, std::source_location where) const {
  return functions("max").max({*this, where}, axes, keep_dims);
}
NDArray NDArray::min(const Axes& axes, bool keep_dims, std::source_location where) const {
  return functions("min").min({*this, where}, axes, keep_dims);
}
NDArray NDArray::argmax(const Axes& axes, bool keep_dims, std::source_location where) const {
  return functions("argmax").argmax({*this, where}, axes, keep_dims);
}
NDArray NDArray::argmin(const Axes& axes, bool keep_dims, std::source_location where) const {
  return functions("argmin").argmin({*this, where}, axes, keep_dims);
}
NDArray NDArray::any(const Axes& axes, bool keep_dims, std::source_location where) const {
  return functions("any").any({*this, where}, axes, keep_dims);
}
NDArray NDArray::all(const Axes& axes, bool keep_dims, std::source_location where) const {
  return functions("all").all({*this, where}, axes, keep_dims);
}
NDArray NDArray::count_nonzero(const Axes& axes, bool keep_dims, std::source_location where) const {
  return functions("count_nonzero").count_nonzero({*this, where}, axes, keep_dims);
}
NDArray NDArray::ptp(const Axes& axes, bool keep_dims, std::source_location where) const {
  return functions("ptp").ptp({*this, where}, axes, keep_dims);
}
NDArray NDArray::median(const Axes& axes, bool keep_dims, std::source_location where) const {
  return functions("median").median({*this, where}, axes, keep_dims);
}
NDArray NDArray::variance(const Axes& axes, double correction, bool keep_dims,
                          std::source_location where) const {
  return functions("variance").variance({*this, where}, axes, correction, keep_dims);
}
NDArray NDArray::stddev(const Axes& axes, double correction, bool keep_dims,
                        std::source_location where) const {
  return functions("stddev").stddev({*this, where}, axes, correction, keep_dims);
}
NDArray NDArray::norm(double p, const Axes& axes, bool keep_dims, std::source_location where) const {
  return functions("norm").norm({*this, where}, p, axes, keep_dims);
}
NDArray NDArray::cumsum(int64_t axis, std::source_location where) const {
  return functions("cumsum").cumsum({*this, where}, axis);
}
NDArray NDArray::cumprod(int64_t axis, std::source_location where) const {
  return functions("cumprod").cumprod({*this, where}, axis);
}
NDArray NDArray::sort(int64_t axis, bool descending, std::source_location where) const {
  return functions("sort").sort({*this, where}, axis, descending);
}
NDArray NDArray::argsort(int64_t axis, bool descending, std::source_location where) const {
  return functions("argsort").argsort({*this, where}, axis, descending);
}
NDArray NDArray::abs(std::source_location where) const { return functions("abs").abs({*this, where}); }
NDArray NDArray::sign(std::source_location where) const { return functions("sign").sign({*this, where}); }
NDArray NDArray::square(std::source_location where) const {
  return functions("square").square({*this, where});
}
NDArray NDArray::sqrt(std::source_location where) const { return functions("sqrt").sqrt({*this, where}); }
NDArray NDArray::exp(std::source_location where) const { return functions("exp").exp({*this, where}); }
NDArray NDArray::log(std::source_location where) const { return functions("log").log({*this, where}); }
NDArray NDArray::sin(std::source_location where) const { return functions("sin").sin({*this, where}); }
NDArray NDArray::cos(std::source_location where) const { return functions("cos").cos({*this, where}); }
NDArray NDArray::tanh(std::source_location where) const { return functions("tanh").tanh({*this, where}); }
NDArray NDArray::sigmoid(std::source_location where) const {
  return functions("sigmoid").sigmoid({*this, where});
}
NDArray NDArray::relu(std::source_location where) const { return functions("relu").relu({*this, where}); }
NDArray NDArray::pow(Scalar exponent, std::source_location where) const {
  return functions("pow").pow({*this, where}, exponent);
}
NDArray NDArray::clip(Scalar low, Scalar high, std::source_location where) const {
  return functions("clip").clip({*this, where}, low, high);
}
NDArray NDArray::round(int64_t decimals, std::source_location where) const {
  return functions("round").round({*this, where}, decimals);
}
NDArray NDArray::matmul(const NDArray& other, std::source_location where) const {
  return functions("matmul").matmul({*this, where}, other);
}
NDArray NDArray::dot(const NDArray& other, std::source_location where) const {
  return functions("dot").dot({*this, where}, other);
}

}  // namespace mx
