// Optimizer: changes parameters by their gradients.
//
//   optim::SGD opt(net.parameters(), {.lr = 0.1, .momentum = 0.9});      // optimizers.h
//   for (...) {
//     NDArray loss = ...;
//     opt.zero_grad();
//     loss.backward();
//     opt.step();
//   }
//
// Parameters are in groups, each with options and multipliers of its own; the constructor makes the first,
// and add_group() further ones. They may be on any devices: a step is one operation for each group, device
// and type. Weights of f16 and bf16 have masters in f32, which the optimiser keeps and changes; the weights
// get their rounded values.
//
// Nothing waits, but loading. State is made with the group, and the numbers that change (learning rate, how
// many steps a parameter has had) are arrays, so that a program which is recorded and replayed sees their
// current values. The formulas are those of torch.optim (update.h).
//
// A parameter without a gradient stays as it is, with its state. When the operation that makes a gradient
// fails, the step of its group is skipped: parameters and state hold that error until they are loaded or
// recovered.
//
// Thread-safety: one thread at a time may use an optimiser. Optimisers of different parameters have nothing
// to do with each other.
#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "ndarray/attrs.h"
#include "ndarray/ndarray.h"
#include "ndarray/save.h"
#include "optim/loss_scale.h"
#include "optim/update.h"

namespace mx::optim {

/// Arrays to optimise: a list, or arrays with names, which messages and state dictionaries then use.
class Parameters {
 public:
  Parameters(std::vector<NDArray> arrays) : arrays_(std::move(arrays)) {}
  Parameters(std::initializer_list<NDArray> arrays) : arrays_(arrays) {}
  Parameters(const NamedArrays& arrays);
  Parameters(std::initializer_list<NamedArrays::value_type> arrays) : Parameters(NamedArrays(arrays)) {}

  const std::vector<NDArray>& arrays() const { return arrays_; }
  /// One for each, or none.
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<NDArray> arrays_;
  std::vector<std::string> names_;
};

/// Factors of a group's learning rate and weight decay; at least 0. A schedule leaves them as they are.
struct Multipliers {
  double lr = 1;
  double weight_decay = 1;
};

class Optimizer {
 public:
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// The name that make_optimizer() knows it by.
  const char* name() const { return name_; }
  /// A group's options, as make_optimizer() takes them; `lr` is that of the beginning.
  virtual AttrMap option_map(size_t group = 0) const = 0;

  size_t groups() const { return groups_.size(); }
  /// Of all groups, in the order in which they were given.
  const std::vector<NDArray>& parameters() const { return parameters_; }
  /// Those that were given, else the number of the parameter among all: "0", "1", ...
  const std::vector<std::string>& parameter_names() const { return names_; }

  /// Changes all parameters that have a gradient by NDArray::grad(). Records nothing (NoGrad). Throws
  /// InvalidArgument, listing all gradients that do not fit, before anything is changed, and InvalidState
  /// when no parameter requires a gradient.
  void step(std::source_location where = std::source_location::current());
  /// The same with these gradients, in the order of parameters(); an empty handle: none.
  void step(const std::vector<NDArray>& gradients,
            std::source_location where = std::source_location::current());

  /// Removes all gradients; or sets those that there are to zero, in the memory that they have.
  void zero_grad(bool in_place = false);

  /// The group's rate, without its multiplier.
  double learning_rate(size_t group = 0) const;
  /// From the next step on: of all groups, or of one. Throws InvalidArgument for what is negative or not
  /// finite.
  void set_learning_rate(double rate);
  void set_learning_rate(double rate, size_t group);

  /// Gradients are those of loss * scale: step() takes the factor back, before it clips. Empty: of the loss.
  void set_loss_scale(std::optional<LossScale> scale) { loss_scale_ = std::move(scale); }
  /// The 2-norm of all gradients together in the last step, before it was limited; rank 0. An empty handle
  /// when nothing asked for it: neither `max_norm` nor a dynamic loss scale.
  const NDArray& gradient_norm() const { return norm_; }

  /// Masters take the values of their weights: to be called when somebody else has changed weights of f16 or
  /// bf16.
  void sync_masters();

  /// All that the next steps depend on besides the parameters and the options: "group.<i>.learning_rate",
  /// "state.<parameter>.<what>" with the names of torch ("momentum_buffer", "exp_avg", "exp_avg_sq", "step"),
  /// and "master". The arrays are those in use: a step changes them, clone() keeps them. Not the loss scale.
  NamedArrays state_dict() const;
  /// From any device. Throws InvalidArgument, listing all that is missing, unknown or of another shape or
  /// type, before anything is changed. Waits for the learning rates. What an error has spoiled is good again.
  void load_state_dict(const NamedArrays& state,
                       std::source_location where = std::source_location::current());

 protected:
  /// What a rule needs for a group.
  struct Group {
    double lr = 0;
    Multipliers multipliers{};
    double max_norm = 0;               ///< of all groups together; 0: whatever the others say
    std::vector<std::string> state{};  ///< names of the arrays like each parameter, zeros at the start
    bool counts = false;               ///< the rule needs to know how many steps there have been
  };

  /// `name` must outlive the optimiser.
  explicit Optimizer(const char* name) : name_(name) {}

  /// Adds a group. Throws InvalidArgument, listing all parameters that cannot be, with nothing changed.
  void add(const Parameters& parameters, const Group& group, std::source_location where);
  /// One step of some of the group's parameters: sgd_update() or the like.
  virtual void update(size_t group, const UpdateArrays& arrays, const UpdateState& state,
                      const UpdateNumbers& numbers, std::source_location where) const = 0;
  const Group& group(size_t i) const { return groups_[i]; }

 private:
  /// The parameters of a group that one operation changes: they are on one device and of one type.
  struct Shard {
    size_t group;
    std::vector<size_t> members;  // in parameters_
    UpdateArrays arrays;          // gradients: only while a step goes on
    UpdateState state;
    UpdateNumbers numbers;

    bool masters() const { return !arrays.copies.empty(); }
  };

  /// Where a parameter is: shards_[shard], entry `row` of each list.
  struct Place {
    size_t shard, row;
  };

  void check_parameters(const Parameters& parameters, const std::vector<std::string>& names,
                        const Group& group, std::source_location where) const;
  void check_gradients(const std::vector<NDArray>& gradients, std::source_location where) const;
  void check_rate(double rate) const;
  void set_rate(size_t group, double rate);

  const char* name_;
  std::vector<Group> groups_;  // `lr` is the current one
  double max_norm_ = 0;
  std::vector<NDArray> parameters_;
  std::vector<std::string> names_;
  std::vector<Place> places_;
  std::vector<Shard> shards_;
  std::optional<LossScale> loss_scale_;
  NDArray norm_;
};

}  // namespace mx::optim
