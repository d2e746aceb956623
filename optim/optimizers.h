// The optimisers: SGD, Adam and AdamW, and how to make one by its name.
//
//   optim::AdamW opt(decayed, {.lr = 3e-4, .max_norm = 1});
//   opt.add_group(biases, {.lr = 3e-4, .weight_decay = 0});
//   opt.add_group(head, {.lr = 3e-4}, {.lr = 10});               // ten times the rate, whatever a schedule
//   says
//
//   auto opt = optim::make_optimizer("sgd", {{"lr", 0.1}, {"momentum", 0.9}}, parameters);
//
// Options are those of torch.optim, with its defaults; where others differ an option says so. Constructors
// and add_group() throw InvalidArgument, listing all options that are out of range and all parameters that
// cannot be.
#pragma once

#include <functional>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "optim/optimizer.h"

namespace mx::optim {

struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;  ///< needs momentum, and no dampening
  bool ema = false;       ///< u = momentum * u + (1 - momentum) * g; momentum below 1, no dampening
  double weight_decay = 0;
  double clip = 0;      ///< limit of each element of a gradient; 0: none
  double max_norm = 0;  ///< limit of the 2-norm of all gradients of all groups together; 0: none
  bool maximize = false;

  template <class V>
  static void fields(V&& v) {
    v("lr", &SGDOptions::lr, "learning rate");
    v("momentum", &SGDOptions::momentum, "share of the last step that is taken again");
    v("dampening", &SGDOptions::dampening, "what is missing of the gradient in it");
    v("nesterov", &SGDOptions::nesterov, "look ahead by the momentum");
    v("ema", &SGDOptions::ema, "the momentum averages");
    v("weight_decay", &SGDOptions::weight_decay, "share of the parameter that is added to its gradient");
    v("clip", &SGDOptions::clip, "limit of each element of a gradient, 0: none");
    v("max_norm", &SGDOptions::max_norm, "limit of the norm of all gradients, 0: none");
    v("maximize", &SGDOptions::maximize, "go up instead of down");
  }
};

/// w -= lr * u with u = momentum * u + (1 - dampening) * g, which begins as g. State: "momentum_buffer" and
/// "step" with momentum, else none.
class SGD final : public Optimizer {
 public:
  using Options = SGDOptions;
  SGD(const Parameters& parameters, const SGDOptions& options = {},
      std::source_location where = std::source_location::current());
  void add_group(const Parameters& parameters, const SGDOptions& options, const Multipliers& multipliers = {},
                 std::source_location where = std::source_location::current());

  const SGDOptions& options(size_t group = 0) const { return options_.at(group); }
  AttrMap option_map(size_t group = 0) const override;

 private:
  void update(size_t group, const UpdateArrays& arrays, const UpdateState& state,
              const UpdateNumbers& numbers, std::source_location where) const override;
  std::vector<SGDOptions> options_;
};

/// kDecoupled: the weight decay does not go through the moments.
template <bool kDecoupled>
struct AdamOptionsOf {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = kDecoupled ? 1e-2 : 0;
  bool bias_correction = true;
  double clip = 0;      ///< limit of each element of a gradient; 0: none
  double max_norm = 0;  ///< limit of the 2-norm of all gradients of all groups together; 0: none
  bool maximize = false;

  template <class V>
  static void fields(V&& v) {
    v("lr", &AdamOptionsOf::lr, "learning rate");
    v("beta1", &AdamOptionsOf::beta1, "share of the first moment that is kept");
    v("beta2", &AdamOptionsOf::beta2, "share of the second moment that is kept");
    v("eps", &AdamOptionsOf::eps, "added to the root of the second moment");
    v("weight_decay", &AdamOptionsOf::weight_decay,
      kDecoupled ? "the parameter shrinks by lr times this"
                 : "share of the parameter that is added to its gradient");
    v("bias_correction", &AdamOptionsOf::bias_correction, "the moments are corrected for beginning as zero");
    v("clip", &AdamOptionsOf::clip, "limit of each element of a gradient, 0: none");
    v("max_norm", &AdamOptionsOf::max_norm, "limit of the norm of all gradients, 0: none");
    v("maximize", &AdamOptionsOf::maximize, "go up instead of down");
  }
};
using AdamOptions = AdamOptionsOf<false>;
using AdamWOptions = AdamOptionsOf<true>;

/// State: "exp_avg", "exp_avg_sq", "step".
template <bool kDecoupled>
class AdamOf final : public Optimizer {
 public:
  using Options = AdamOptionsOf<kDecoupled>;
  AdamOf(const Parameters& parameters, const Options& options = {},
         std::source_location where = std::source_location::current());
  void add_group(const Parameters& parameters, const Options& options, const Multipliers& multipliers = {},
                 std::source_location where = std::source_location::current());

  const Options& options(size_t group = 0) const { return options_.at(group); }
  AttrMap option_map(size_t group = 0) const override;

 private:
  void update(size_t group, const UpdateArrays& arrays, const UpdateState& state,
              const UpdateNumbers& numbers, std::source_location where) const override;
  std::vector<Options> options_;
};
extern template class AdamOf<false>;
extern template class AdamOf<true>;
using Adam = AdamOf<false>;
using AdamW = AdamOf<true>;

/// Makes an optimiser of a registered name: "sgd", "adam", "adamw". Options that are not given have their
/// defaults; integers are numbers too. Throws InvalidArgument for a name that nobody registered, and listing
/// all options that are unknown, of another type or out of range. Any thread.
std::unique_ptr<Optimizer> make_optimizer(const std::string& name, const AttrMap& options,
                                          const Parameters& parameters,
                                          std::source_location where = std::source_location::current());

using OptimizerFactory = std::function<std::unique_ptr<Optimizer>(
    const Parameters& parameters, const AttrMap& options, std::source_location where)>;
/// Adds a name. Throws InvalidArgument when there is one. Any thread.
void register_optimizer(const std::string& name, OptimizerFactory factory);
/// All names, sorted.
std::vector<std::string> optimizer_names();

}  // namespace mx::optim
