#include "operators/elementwise_cost.h"

#include <algorithm>

namespace mx::detail {
namespace {

using kernels::BinaryOp;
using kernels::UnaryOp;

constexpr int64_t kDirectNanoseconds = 2000, kMostElements = 4096;

/// Nanoseconds for a thousand elements: for the slowest type other than f64, and for f64.
template <class Op>
struct Measured {
  Op op;
  int others, f64;
};

// Measured with direct_bench --table (docs/performance/kernels.md names the processor), operands between -4
// and 4 of both signs. Functions that are not listed compute 4096 elements of any type in two microseconds.
constexpr Measured<UnaryOp> kUnary[] = {
    {UnaryOp::exp, 200, 650},         {UnaryOp::exp2, 850, 850},       {UnaryOp::expm1, 1000, 750},
    {UnaryOp::log, 400, 3300},        {UnaryOp::log2, 2650, 2600},     {UnaryOp::log10, 4200, 4200},
    {UnaryOp::log1p, 2850, 2200},     {UnaryOp::cbrt, 1200, 1000},     {UnaryOp::sin, 800, 600},
    {UnaryOp::cos, 800, 600},         {UnaryOp::tan, 1350, 1000},      {UnaryOp::asin, 5200, 5250},
    {UnaryOp::acos, 5250, 5300},      {UnaryOp::atan, 850, 650},       {UnaryOp::sinh, 1250, 1000},
    {UnaryOp::cosh, 900, 700},        {UnaryOp::tanh, 250, 1050},      {UnaryOp::asinh, 1850, 1600},
    {UnaryOp::acosh, 5150, 5300},     {UnaryOp::atanh, 6700, 5300},    {UnaryOp::erf, 1550, 2400},
    {UnaryOp::erfc, 1500, 2400},      {UnaryOp::lgamma, 11700, 12000}, {UnaryOp::sigmoid, 300, 800},
    {UnaryOp::softplus, 450, 1550},   {UnaryOp::silu, 350, 800},       {UnaryOp::gelu, 600, 2500},
    {UnaryOp::gelu_tanh, 1200, 1000},
};
constexpr Measured<BinaryOp> kBinary[] = {
    {BinaryOp::floor_div, 1700, 500},
    {BinaryOp::mod, 1650, 500},
    {BinaryOp::fmod, 1600, 350},
    {BinaryOp::pow, 2600, 2650},
    {BinaryOp::atan2, 1450, 1200},
    {BinaryOp::hypot, 650, 500},
    {BinaryOp::nextafter, 1850, 3250},
    {BinaryOp::logaddexp, 2250, 1900},
    {BinaryOp::silu_backward, 450, 950},
    {BinaryOp::gelu_backward, 650, 2500},
    {BinaryOp::gelu_tanh_backward, 550, 1200},
    {BinaryOp::binary_cross_entropy, 8800, 8850},
};

template <class Op, size_t kCount>
ElementCost find(const Measured<Op> (&table)[kCount], Op op) {
  for (const Measured<Op>& line : table) {
    if (line.op != op) continue;
    const auto elements = [](int64_t ns) { return kDirectNanoseconds * 1000 / std::max<int64_t>(ns, 1); };
    const int64_t direct = std::min(kMostElements, elements(line.others));
    return {direct, std::max<int64_t>(1, (direct + elements(line.f64) - 1) / elements(line.f64))};
  }
  return {kMostElements, 1};
}

}  // namespace

ElementCost element_cost(UnaryOp op) { return find(kUnary, op); }
ElementCost element_cost(BinaryOp op) { return find(kBinary, op); }

}  // namespace mx::detail
