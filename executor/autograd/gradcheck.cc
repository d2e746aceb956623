#include "executor/autograd/gradcheck.h"

#include <algorithm>
#include <cmath>

#include "engine/base/check.h"
#include "executor/autograd/autograd.h"
#include "ndarray/grad_mode.h"

namespace mx::detail {
namespace {

std::vector<double> values_of(const NDArray& y) { return y.detach().to(f64).to_vector<double>(); }

/// Returns d(result) / d(arrays[which][element]) for all elements of the result.
std::vector<double> difference(const ArrayFunction& f, const std::vector<NDArray>& arrays, size_t which,
                               size_t element, double step) {
  std::vector<double> values[2];
  for (const int side : {0, 1}) {
    std::vector<NDArray> changed;
    for (const NDArray& a : arrays) changed.push_back(a.detach());
    std::vector<double> elements = changed[which].to_vector<double>();
    elements[element] += side == 0 ? step : -step;
    changed[which] = array(elements, arrays[which].context()).reshape(arrays[which].shape());
    values[side] = values_of(f(changed));
  }
  MX_CHECK(values[0].size() == values[1].size(), InvalidArgument,
           "[gradcheck] expected a function that returns arrays of one shape, got ", values[0].size(),
           " elements and ", values[1].size());
  for (size_t i = 0; i < values[0].size(); ++i) values[0][i] = (values[0][i] - values[1][i]) / (2 * step);
  return values[0];
}

/// Copies of the arrays as leaves, and the result of f for them.
struct Recorded {
  std::vector<NDArray> leaves;
  NDArray y;
};

Recorded record(const ArrayFunction& f, const std::vector<NDArray>& arrays) {
  const EnableGrad on;
  Recorded recorded;
  for (const NDArray& a : arrays) {
    recorded.leaves.push_back(a.detach().clone());
    if (is_floating(a.dtype())) recorded.leaves.back().requires_grad_();
  }
  recorded.y = f(recorded.leaves);
  return recorded;
}

void check_arrays(const std::vector<NDArray>& arrays) {
  bool any = false;
  for (const NDArray& a : arrays) {
    MX_CHECK(!is_floating(a.dtype()) || a.dtype() == f64, InvalidArgument,
             "[gradcheck] expected arrays of f64, for differences need their digits, got one of ", a.dtype());
    any = any || is_floating(a.dtype());
  }
  MX_CHECK(any, InvalidArgument, "[gradcheck] expected an array of f64 among the arrays, got ", arrays.size(),
           " others");
}

}  // namespace

void throw_wrong_arity(size_t arrays) {
  throw InvalidArgument(
      concat("[gradcheck] expected as many arrays as the function has arguments, got ", arrays));
}

bool gradcheck(const ArrayFunction& f, const std::vector<NDArray>& arrays, const GradcheckOptions& options) {
  check_arrays(arrays);
  MX_CHECK(options.step > 0 && std::isfinite(options.step), InvalidArgument,
           "[gradcheck] expected a step above 0, got ", options.step);
  const auto [leaves, y] = record(f, arrays);
  const std::vector<double> first = values_of(y), second = values_of(record(f, arrays).y);
  MX_CHECK(first == second || std::any_of(first.begin(), first.end(), [](double v) { return std::isnan(v); }),
           InvalidArgument,
           "[gradcheck] expected a function that returns the same for the same arrays, got other values in "
           "the second call");
  const size_t outputs = first.size();
  // derivatives[i][j] is the gradient of output j with respect to array i.
  std::vector<std::vector<std::vector<double>>> derivatives(arrays.size());
  std::vector<NDArray> wanted;
  for (const NDArray& leaf : leaves)
    if (leaf.requires_grad()) wanted.push_back(leaf);
  for (size_t j = 0; j < outputs; ++j) {
    NDArray head = zeros_like(y);
    head.flatten()[static_cast<int64_t>(j)] = 1;
    std::vector<NDArray> found(wanted.size());
    if (y.requires_grad())
      found = gradients({y}, wanted, {.heads = {head}, .retain_graph = true, .allow_unused = true});
    for (size_t i = 0, k = 0; i < arrays.size(); ++i) {
      if (!leaves[i].requires_grad()) continue;
      const NDArray& g = found[k++];
      derivatives[i].push_back((g.defined() ? g : zeros_like(leaves[i])).to_vector<double>());
    }
  }
  for (size_t i = 0; i < arrays.size(); ++i) {
    if (!leaves[i].requires_grad()) continue;
    for (size_t e = 0; e < static_cast<size_t>(arrays[i].numel()); ++e) {
      const std::vector<double> expected = difference(f, arrays, i, e, options.step);
      for (size_t j = 0; j < outputs; ++j) {
        const double got = derivatives[i][j][e];
        // Written so that NaN differs.
        if (std::abs(got - expected[j]) <= options.atol + options.rtol * std::abs(expected[j])) continue;
        if (!options.raise) return false;
        throw InvalidArgument(concat("[gradcheck] expected the derivative of element ", j,
                                     " of the result with respect to element ", e, " of array ", i,
                                     " to be near the difference ", expected[j], ", got ", got));
      }
    }
  }
  return true;
}

}  // namespace mx::detail
