#include "nn/parametrize.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "executor/autograd/autograd.h"
#include "ndarray/detail/place.h"
#include "ndarray/grad_mode.h"
#include "nn/containers.h"
#include "nn/convolution.h"
#include "nn/detail/module_state.h"
#include "nn/init.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/matmul.h"
#include "operators/parameter_rule.h"
#include "operators/reduce.h"

namespace mx::nn {
namespace {

using detail::ModuleState;
using mx::detail::called_at;

constexpr const char* kParts = "parametrizations";

/// Computes a parameter from its originals. Part "0" of a ParametrizationList.
class Parametrization : public Module {
 public:
  virtual NDArray compute(const std::vector<Parameter>& originals) const = 0;
};

/// The originals of one parameter, and how it is computed from them.
class ParametrizationList : public ModuleOf<ParametrizationList> {
 public:
  ParametrizationList(const std::vector<std::pair<std::string, NDArray>>& originals, bool requires_grad,
                      const AnyModule& part)
      : part_(part) {
    for (const auto& [name, value] : originals)
      originals_.push_back(add_parameter(name, value, requires_grad));
    add("0", part);
  }
  NDArray compute() const { return part_.as<Parametrization>()->compute(originals_); }
  bool requires_grad() const {
    return std::any_of(originals_.begin(), originals_.end(),
                       [](const Parameter& original) { return original.requires_grad(); });
  }

 private:
  std::vector<Parameter> originals_;
  AnyModule part_;
};

class ListRule final : public mx::detail::ParameterRule {
 public:
  explicit ListRule(const ParametrizationList& list) : list_(list) {}
  NDArray compute() const override { return list_.compute(); }
  std::shared_ptr<const ParameterRule> clone() const override { return std::make_shared<ListRule>(list_); }

 private:
  ParametrizationList list_;
};

/// The 2-norm over all dimensions but `dim`, which are kept with size 1; over all, of rank 0, for -1.
NDArray norm_except(const NDArray& v, int64_t dim) {
  if (dim == -1) return mx::norm(v);
  Axes axes;
  for (int i = 0; i < v.rank(); ++i)
    if (i != dim) axes.push_back(i);
  return axes.empty() ? mx::abs(v) : norm(v, 2, axes, true);
}

class WeightNorm : public ModuleOf<WeightNorm, Parametrization> {
 public:
  explicit WeightNorm(int64_t dim) : dim_(dim) {}
  NDArray compute(const std::vector<Parameter>& originals) const override {
    const NDArray &g = originals[0], &v = originals[1];
    return v * (g / norm_except(v, dim_));
  }

 private:
  int64_t dim_;
};

class SpectralNorm : public ModuleOf<SpectralNorm, Parametrization> {
 public:
  SpectralNorm(const NDArray& weight, int64_t dim, int64_t iterations, double eps)
      : dim_(dim), iterations_(iterations), eps_(eps) {
    if (weight.rank() == 1) return;
    const NoGrad guard;
    const NDArray w = matrix(weight);
    // Random numbers on the CPU, so that the values are the same on every device.
    const auto start = [&](int64_t size) {
      return normalized(init::normal_(empty({size}, w.dtype())).to(w.context()));
    };
    u_ = add_buffer("_u", start(w.size(0)));
    v_ = add_buffer("_v", start(w.size(1)));
    improve(w, 15);
  }

  NDArray compute(const std::vector<Parameter>& originals) const override {
    const NDArray& weight = originals[0];
    if (weight.rank() == 1) return normalized(weight);
    const NDArray w = matrix(weight);
    if (train_mode()) improve(w.detach(), iterations_);
    // Copies, because the next use changes the buffers, whose values the gradient reads.
    const NDArray u = u_.clone(), v = v_.clone();
    return weight / sum(u * matmul(w, v));
  }

 private:
  NDArray normalized(const NDArray& a) const { return a / maximum(norm(a), eps_); }

  /// The weight with the dimension dim_ first and the others as one.
  NDArray matrix(const NDArray& weight) const {
    Shape order = {dim_};
    for (int64_t i = 0; i < weight.rank(); ++i)
      if (i != dim_) order.push_back(i);
    return weight.transpose(order).reshape({weight.size(static_cast<int>(dim_)), -1});
  }

  void improve(const NDArray& w, int64_t iterations) const {
    if (iterations <= 0) return;
    const NoGrad guard;
    NDArray u = u_, v = v_;
    for (int64_t i = 0; i < iterations; ++i) {
      u = normalized(matmul(w, v));
      v = normalized(matmul(w.T(), u));
    }
    u_.copy_from(u);
    v_.copy_from(v);
  }

  Parameter u_, v_;  // the buffers
  int64_t dim_, iterations_;
  double eps_;
};

std::vector<NamedModule>::iterator find_part(ModuleState& state, const std::string& name) {
  return std::find_if(state.children.begin(), state.children.end(),
                      [&](const NamedModule& child) { return child.name == name; });
}

/// The module's own parameters, for errors: "weight, bias".
std::string own_parameters(const ModuleState& state) {
  std::string names;
  for (const ModuleState::Array& entry : state.arrays)
    if (!entry.buffer) names += (names.empty() ? "" : ", ") + entry.name;
  return names.empty() ? "(none)" : names;
}

ModuleState::Array& own_parameter(ModuleState& state, const char* op, const std::string& name,
                                  const std::source_location& where) {
  for (ModuleState::Array& entry : state.arrays)
    if (!entry.buffer && entry.name == name) return entry;
  throw InvalidArgument(mx::detail::concat("[", op, "] expected one of the module's own parameters ",
                                           own_parameters(state), ", got \"", name, '"', called_at(where)));
}

/// Replaces a parameter of the module by the list.
void parametrize(Module& module, const std::string& name, const ParametrizationList& list) {
  ModuleState& state = ModuleState::of(module);
  auto dict = find_part(state, kParts);
  if (dict == state.children.end()) {
    const AnyModule made = ModuleDict();
    ModuleState::of(*made).name = kParts;
    dict = state.children.insert(dict, {kParts, made});
  }
  dict->module.as<ModuleDict>()->insert(name, list);
  const auto entry = std::find_if(state.arrays.begin(), state.arrays.end(),
                                  [&](const ModuleState::Array& a) { return a.name == name; });
  mx::detail::set_rule(entry->place, std::make_shared<ListRule>(list));
  state.computed.emplace_back(name, entry->place);
  state.arrays.erase(entry);
}

}  // namespace

void detail::weight_norm(Module& module, const std::string& name, int64_t dim, std::source_location where) {
  const ModuleState::Array& entry = own_parameter(ModuleState::of(module), "weight_norm", name, where);
  const NDArray weight = entry.place.detach();
  MX_CHECK(dim >= -1 && dim < weight.rank(), InvalidArgument,
           "[weight_norm] expected a dimension of the shape ", weight.shape(), ", or -1 for all, got ", dim,
           called_at(where));
  const bool requires_grad = entry.place.requires_grad();
  parametrize(module, name,
              ParametrizationList({{"original0", norm_except(weight, dim)}, {"original1", weight}},
                                  requires_grad, WeightNorm(dim)));
}

void detail::spectral_norm(Module& module, const std::string& name, const SpectralNormOptions& options,
                           std::source_location where) {
  const ModuleState::Array& entry = own_parameter(ModuleState::of(module), "spectral_norm", name, where);
  const NDArray weight = entry.place.detach();
  MX_CHECK(weight.rank() >= 1, InvalidArgument,
           "[spectral_norm] expected a parameter with dimensions, got one of rank 0", called_at(where));
  const int64_t dim =
      options.dim.value_or(dynamic_cast<const ConvTransposeBase*>(&module) != nullptr ? 1 : 0);
  MX_CHECK(dim >= -weight.rank() && dim < weight.rank(), InvalidArgument,
           "[spectral_norm] expected a dimension of the shape ", weight.shape(), ", got ", dim,
           called_at(where));
  MX_CHECK(options.n_power_iterations >= 1, InvalidArgument,
           "[spectral_norm] expected at least 1 power iteration, got ", int64_t{options.n_power_iterations},
           called_at(where));
  const bool requires_grad = entry.place.requires_grad();
  const SpectralNorm part(weight, dim < 0 ? dim + weight.rank() : dim, options.n_power_iterations,
                          options.eps);
  ParametrizationList list({{"original", weight}}, requires_grad, part);
  list.train(module.training());
  parametrize(module, name, list);
}

void remove_parametrizations(Module& module, const std::string& name, std::source_location where) {
  ModuleState& state = ModuleState::of(module);
  const auto entry = std::find_if(state.computed.begin(), state.computed.end(),
                                  [&](const auto& computed) { return computed.first == name; });
  MX_CHECK(entry != state.computed.end(), InvalidArgument,
           "[remove_parametrizations] expected a parametrised parameter, got \"", name, '"',
           called_at(where));
  const Parameter place = entry->second;
  const auto dict = find_part(state, kParts);
  ModuleState& parts = ModuleState::of(*dict->module);
  const auto part = find_part(parts, name);
  const ParametrizationList list = *part->module.as<ParametrizationList>();
  NDArray value;
  {
    const NoGrad guard;
    value = list.compute().detach();
  }
  if (list.requires_grad()) value.requires_grad_();
  parts.children.erase(part);
  if (parts.children.empty()) state.children.erase(dict);
  mx::detail::remove_rule(place, value);
  state.arrays.push_back({name, place, false, true});
  state.computed.erase(entry);
}

}  // namespace mx::nn
