#include "optim/clip.h"

#include <cmath>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "ndarray/grad_mode.h"
#include "operators/elementwise_binary.h"
#include "operators/select.h"
#include "optim/update.h"

namespace mx::optim {
namespace {

void check_limit(const char* op, double limit, std::source_location where) {
  MX_CHECK(limit > 0, InvalidArgument, "[", op, "] expected a limit above 0, got ", limit,
           mx::detail::called_at(where));
}

std::vector<NDArray> gradients_of(const Parameters& parameters) {
  std::vector<NDArray> all;
  for (const NDArray& p : parameters)
    if (const NDArray g = p.requires_grad() ? p.grad() : NDArray(); g.defined()) all.push_back(g.detach());
  return all;
}

void multiply(NDArray gradient, const NDArray& factor) {
  gradient.copy_from(gradient * factor.to(gradient.context()).to(gradient.dtype()));
}

}  // namespace

NDArray clip_grad_norm(const Parameters& parameters, double max_norm, std::source_location where) {
  check_limit("clip_grad_norm", max_norm, where);
  const NoGrad pause;
  const std::vector<NDArray> gradients = gradients_of(parameters);
  const NDArray norm = global_norm(gradients, where);
  if (std::isinf(max_norm)) return norm;
  const NDArray factor = clip_scale(norm, max_norm, where);
  for (const NDArray& g : gradients) multiply(g, factor);
  return norm;
}

void clip_each_grad_norm(const Parameters& parameters, double max_norm, std::source_location where) {
  check_limit("clip_each_grad_norm", max_norm, where);
  if (std::isinf(max_norm)) return;
  const NoGrad pause;
  for (const NDArray& g : gradients_of(parameters))
    multiply(g, clip_scale(global_norm({g}, where), max_norm, where));
}

void clip_grad_value(const Parameters& parameters, double limit, std::source_location where) {
  check_limit("clip_grad_value", limit, where);
  if (std::isinf(limit)) return;
  const NoGrad pause;
  for (NDArray g : gradients_of(parameters)) g.copy_from(clamp(g, -limit, limit));
}

}  // namespace mx::optim
