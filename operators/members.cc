#include "operators/members.h"

#include "ndarray/hooks.h"
#include "ndarray/members.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/matmul.h"
#include "operators/quantile.h"
#include "operators/reduce.h"
#include "operators/scan.h"
#include "operators/select.h"
#include "operators/sorting.h"
#include "operators/special.h"
#include "operators/statistics.h"

namespace mx {
namespace {

using Element = std::optional<DType>;

const detail::MemberFunctions kMembers = {
    .sum = [](const Arg& x, const Axes& a, bool k, Element t) { return mx::sum(x, a, k, t); },
    .prod = [](const Arg& x, const Axes& a, bool k, Element t) { return mx::prod(x, a, k, t); },
    .mean = [](const Arg& x, const Axes& a, bool k, Element t) { return mx::mean(x, a, k, t); },
    .max = [](const Arg& x, const Axes& a, bool k) { return mx::max(x, a, k); },
    .min = [](const Arg& x, const Axes& a, bool k) { return mx::min(x, a, k); },
    .argmax = [](const Arg& x, const Axes& a, bool k) { return mx::argmax(x, a, k); },
    .argmin = [](const Arg& x, const Axes& a, bool k) { return mx::argmin(x, a, k); },
    .any = [](const Arg& x, const Axes& a, bool k) { return mx::any(x, a, k); },
    .all = [](const Arg& x, const Axes& a, bool k) { return mx::all(x, a, k); },
    .count_nonzero = [](const Arg& x, const Axes& a, bool k) { return mx::count_nonzero(x, a, k); },
    .ptp = [](const Arg& x, const Axes& a, bool k) { return mx::ptp(x, a, k); },
    .median = [](const Arg& x, const Axes& a, bool k) { return mx::median(x, a, k); },
    .variance = [](const Arg& x, const Axes& a, double c, bool k) { return mx::var(x, a, c, k); },
    .stddev = [](const Arg& x, const Axes& a, double c, bool k) { return mx::stddev(x, a, c, k); },
    .norm = [](const Arg& x, double p, const Axes& a, bool k) { return mx::norm(x, p, a, k); },
    .cumsum = [](const Arg& x, int64_t axis) { return mx::cumsum(x, axis); },
    .cumprod = [](const Arg& x, int64_t axis) { return mx::cumprod(x, axis); },
    .sort = [](const Arg& x, int64_t axis, bool d) { return mx::sort(x, axis, d); },
    .argsort = [](const Arg& x, int64_t axis, bool d) { return mx::argsort(x, axis, d); },
    .abs = [](const Arg& x) { return mx::abs(x); },
    .sign = [](const Arg& x) { return mx::sign(x); },
    .square = [](const Arg& x) { return mx::square(x); },
    .sqrt = [](const Arg& x) { return mx::sqrt(x); },
    .exp = [](const Arg& x) { return mx::exp(x); },
    .log = [](const Arg& x) { return mx::log(x); },
    .sin = [](const Arg& x) { return mx::sin(x); },
    .cos = [](const Arg& x) { return mx::cos(x); },
    .tanh = [](const Arg& x) { return mx::tanh(x); },
    .sigmoid = [](const Arg& x) { return mx::sigmoid(x); },
    .relu = [](const Arg& x) { return mx::relu(x); },
    .pow =
        [](const Arg& x, Scalar e) {
          return mx::pow({x.array, x.where}, {e, x.where});
        },
    .clamp = [](const Arg& x, Scalar low, Scalar high) { return mx::clamp(x, low, high); },
    .clip = [](const Arg& x, Scalar low, Scalar high) { return mx::clip(x, low, high); },
    .round = [](const Arg& x, int64_t d) { return d == 0 ? mx::round(x) : mx::round(x, d); },
    .matmul = [](const Arg& x, const NDArray& y) { return mx::matmul(x, y); },
    .dot = [](const Arg& x, const NDArray& y) { return mx::dot(x, y); },
};

}  // namespace

bool detail::install_members() {
  hooks().members = &kMembers;
  return true;
}

}  // namespace mx
