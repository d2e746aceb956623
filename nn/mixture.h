// MixtureOfExperts: each row of the input is computed by the few of several modules that a router chooses for
// it.
//
//   nn::MixtureOfExperts layer(64, {.experts = 8, .top_k = 2}, [] { return nn::Linear(64, 64); });
//   nn::MixtureResult r = layer.route(x);             // or y = layer(x)
//   NDArray loss = nn::cross_entropy(head(r.output), labels) + 0.01 * r.balance_loss;
#pragma once

#include <cstdint>
#include <functional>
#include <source_location>
#include <string>
#include <vector>

#include "nn/containers.h"
#include "nn/linear.h"
#include "nn/module.h"

namespace mx::nn {

struct MixtureOptions {
  int64_t experts = 4;
  int64_t top_k = 1;  ///< experts for each row
  /// Largest share of the rows that an expert takes, as a multiple of the equal share: an expert takes at
  /// most ceil(capacity * rows * top_k / experts) of them. Later rows get nothing from it. 0: no limit.
  double capacity = 0;
  /// Standard deviation of normal noise that is added to the router's scores while training; 0: none.
  double noise = 0;
  /// The weights of the chosen experts of a row are divided by their sum. Without it, and always if top_k is
  /// 1, a weight is the probability itself, so that the router gets gradients from the loss.
  bool normalize = true;
  Context context = cpu();
  DType dtype = f32;
};

struct MixtureResult {
  NDArray output;
  /// experts * sum over the experts of (share of the choices that went to it) * (mean of its probability): 1
  /// if the experts are used equally, and larger otherwise. Rank 0. The shares are constants; gradients flow
  /// through the probabilities. Of Fedus, Zoph and Shazeer, "Switch Transformers" (JMLR 2022).
  NDArray balance_loss;
  NDArray counts;  ///< i64 (experts,): how many rows chose each expert, with those beyond the capacity

  /// For hooks of modules (nn/detail/call_arrays.h).
  template <class V>
  void arrays(V&& visit) {
    visit(output);
    visit(balance_loss);
    visit(counts);
  }
};

/// y[i] = sum over the chosen experts e of w[i, e] * expert_e(x[i]), for x (.., in). The router is a Linear
/// without bias; the softmax of its scores gives the probabilities, of which the top_k largest are chosen. An
/// expert computes only the rows that chose it, and is not called if none did. So experts must map (rows, in)
/// to (rows, out), each row by itself.
///
/// Parameters: those of "router" and of "experts.0", "experts.1", ... Buffer: "counts", i64 (experts,), the
/// sums of MixtureResult::counts over all calls while training; it is not part of state_dict().
///
/// A call waits for the router's choice, because the sizes of the experts' inputs depend on it.
///
/// Thread-safety: that of Module (nn/module.h).
class MixtureOfExperts : public ModuleOf<MixtureOfExperts> {
 public:
  /// Makes the experts with `make`. Throws InvalidArgument for sizes below 1, a top_k that is not from 1 to
  /// the number of experts, and a negative capacity or noise.
  MixtureOfExperts(IntArg in, const MixtureOptions& options, const std::function<AnyModule()>& make,
                   std::source_location where = std::source_location::current());
  /// Takes these modules; options.experts is set to their number.
  MixtureOfExperts(IntArg in, const std::vector<AnyModule>& experts, MixtureOptions options,
                   std::source_location where = std::source_location::current());

  NDArray forward(const NDArray& x) override;
  MixtureResult route(const NDArray& x);
  std::string extra() const override;

  Linear router;
  ModuleList experts;
  Parameter counts;

 private:
  NDArray run_experts(const NDArray& x, const NDArray& chosen, const NDArray& weights,
                      const std::vector<int64_t>& sizes);

  MixtureOptions options_;
};

}  // namespace mx::nn
