// Weights that are computed from other parameters: weight_norm and spectral_norm, as the parametrisations of
// torch.nn.utils.parametrizations, with their names and formulas.
//
//   nn::Linear fc = nn::weight_norm(nn::Linear(64, 32));
//   fc.parameters();      // bias, parametrizations.weight.original0 and .original1
//   fc(x);                // computes the weight, and then the layer
//
// The parameter is no parameter of the module any more: its originals are, and `layer.weight` is a new array
// at each use, computed from them and recorded, so gradients flow to the originals. Changing that array
// changes nothing. Make optimisers afterwards. A parameter that is tied to one of another module must not be
// parametrised.
//
// The functions change the module, which is a handle, and return it. All throw InvalidArgument if the module
// has no parameter of that name of its own, or if it has been parametrised.
#pragma once

#include <cstdint>
#include <optional>
#include <source_location>
#include <string>

#include "nn/module.h"

namespace mx::nn {

struct SpectralNormOptions {
  IntArg n_power_iterations = 1;  ///< of each use in training mode
  double eps = 1e-12;             ///< the least norm by which a vector is divided
  /// The dimension of the outputs. None: 1 for ConvTranspose1d, 2d and 3d, 0 for others.
  std::optional<int64_t> dim{};
};

namespace detail {
void weight_norm(Module& module, const std::string& name, int64_t dim, std::source_location where);
void spectral_norm(Module& module, const std::string& name, const SpectralNormOptions& options,
                   std::source_location where);
}  // namespace detail

/// weight = g v / |v|, where |v| is the 2-norm over all dimensions but `dim`, or over all with -1.
/// "parametrizations.<name>.original0" is g, which is |weight| at first, and ".original1" is v. Source:
/// Salimans and Kingma, "Weight normalization", 2016.
template <class M>
requires kIsModule<M> M weight_norm(const M& module, const std::string& name = "weight", IntArg dim = 0,
                                    std::source_location where = std::source_location::current()) {
  M same(module);
  detail::weight_norm(same, name, dim, where);
  return same;
}

/// weight = w / sigma, where sigma is an estimate of the largest singular value of w as a matrix with a row
/// for each output. "parametrizations.<name>.original" is w. The buffers ".0._u" and ".0._v" are estimates of
/// the singular vectors, which each use in training mode improves by power iterations. A w of rank 1 is
/// divided by its norm, and has no buffers. The mode is that of the module. Source: Miyato et al., "Spectral
/// normalization for generative adversarial networks", 2018.
template <class M>
requires kIsModule<M> M spectral_norm(const M& module, const std::string& name = "weight",
                                      const SpectralNormOptions& options = {},
                                      std::source_location where = std::source_location::current()) {
  M same(module);
  detail::spectral_norm(same, name, options, where);
  return same;
}

/// Makes a parametrised parameter an ordinary one again, with the value that it has now, as
/// torch.nn.utils.parametrize.remove_parametrizations does. Throws InvalidArgument if it is an ordinary one.
void remove_parametrizations(Module& module, const std::string& name = "weight",
                             std::source_location where = std::source_location::current());

}  // namespace mx::nn
