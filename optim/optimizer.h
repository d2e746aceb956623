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
// Parameters are in groups, each with options and multipliers of its own. The constructor makes the first
// group, add_group() further ones. They may be on any devices: a step is one operation for each group, device
// and type. Weights of f16 and bf16 have masters in f32, which the optimiser keeps and changes; the weights
// get their rounded values.
//
// An optimiser holds Parameters, so it follows a module that is moved to a device or to another type: the
// next call moves the state as well. (A list of NDArrays is those arrays, whatever becomes of the module.)
//
// Only loading waits. State is made with the group, and the numbers that change (learning rate, how many
// steps a parameter has had) are arrays, so that a program which is recorded and replayed sees their current
// values. The formulas are those of torch.optim (update.h).
//
// A parameter without a gradient stays as it is, with its state. If the operation that makes a gradient
// fails, the step of its group is skipped: parameters and state hold that error until they are loaded or
// recovered.
//
// Thread-safety: one thread at a time may use an optimiser. Optimisers of different parameters are
// independent.
#pragma once

#include <optional>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "ndarray/attrs.h"
#include "ndarray/ndarray.h"
#include "ndarray/save.h"
#include "operators/parameter.h"
#include "optim/loss_scale.h"
#include "optim/update.h"

namespace mx::optim {

namespace detail {
class Problems;
}  // namespace detail

using mx::Parameters;

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

  /// The name under which make_optimizer() knows it.
  const char* name() const { return name_; }
  /// A group's options, as make_optimizer() takes them; `lr` is the initial one.
  virtual AttrMap option_map(size_t group = 0) const = 0;

  size_t groups() const { return groups_.size(); }
  /// The parameters of all groups, in the order in which they were added, each with a name that state
  /// dictionaries and messages use. A parameter without a name is called by its number among all: "0", "1".
  /// If two have the same name ("weight" of two modules), the number of the later one is appended:
  /// "weight@3".
  const Parameters& parameters() const { return parameters_; }

  /// Changes all parameters that have a gradient, by that gradient. Records nothing (NoGrad). Throws
  /// InvalidArgument, listing all gradients that do not fit, before anything is changed, and InvalidState
  /// if no parameter requires a gradient.
  void step(std::source_location where = std::source_location::current());
  /// The same with these gradients, in the order of parameters(); an empty handle means none.
  void step(const std::vector<NDArray>& gradients,
            std::source_location where = std::source_location::current());

  /// Removes all gradients; if `in_place`, sets the existing ones to zero instead.
  void zero_grad(bool in_place = false);

  /// The group's rate, without its multiplier.
  double learning_rate(size_t group = 0) const;
  /// Sets the rate of all groups, or of one, from the next step on. Throws InvalidArgument for a rate that
  /// is negative or not finite.
  void set_learning_rate(double rate);
  void set_learning_rate(double rate, size_t group);

  /// Tells step() that gradients are those of loss * scale: it divides by the scale before it clips. Empty:
  /// gradients are those of the loss.
  void set_loss_scale(std::optional<LossScale> scale) { loss_scale_ = std::move(scale); }
  /// The 2-norm of all gradients together in the last step, before it was limited; rank 0. An empty handle
  /// if neither `max_norm` nor a dynamic loss scale needed it.
  const NDArray& gradient_norm() const { return norm_; }

  /// Sets the masters to the values of their weights. To be called after weights of f16 or bf16 were changed
  /// by anything but this optimiser.
  void sync_masters();

  /// All that the next steps depend on besides the parameters and the options: "group.<i>.learning_rate",
  /// "state.<parameter>.<what>" with the names of torch ("momentum_buffer", "exp_avg", "exp_avg_sq", "step"),
  /// and "master". The arrays are those in use: a step changes them, clone() keeps them. Not the loss scale.
  NamedArrays state_dict() const;
  /// Loads from any device. Throws InvalidArgument, listing all that is missing, unknown or of another shape
  /// or type, before anything is changed. Waits for the learning rates. Heals state that an error has
  /// spoiled.
  void load_state_dict(const NamedArrays& state,
                       std::source_location where = std::source_location::current());

 protected:
  /// What a rule needs for a group.
  struct Group {
    double lr = 0;
    Multipliers multipliers{};
    double max_norm = 0;               ///< limit of all groups together; 0: whatever the others say
    std::vector<std::string> state{};  ///< names of the arrays like each parameter, zeros at the start
    bool counts = false;               ///< the rule needs the number of the step
  };

  /// `name` must outlive the optimiser.
  explicit Optimizer(const char* name) : name_(name) {}

  /// Adds a group. Throws InvalidArgument, listing all parameters that cannot be, with nothing changed.
  void add(const Parameters& parameters, const Group& group, std::source_location where);
  /// One step of some of the group's parameters: sgd_update() or the like.
  virtual void update(size_t group, const UpdateArrays& arrays, const UpdateState& state,
                      const UpdateNumbers& numbers, std::source_location where) const = 0;
  /// Throws InvalidArgument if there is no such group.
  const Group& group(size_t i) const;

 private:
  /// The parameters of a group that one operation changes: they are on one device and of one type.
  struct Shard {
    size_t group;
    std::vector<size_t> members;  // in parameters_
    UpdateArrays arrays;          // gradients: only during a step
    UpdateState state;
    UpdateNumbers numbers;

    bool masters() const { return !arrays.copies.empty(); }
  };
  /// Where a parameter is: shards[shard], entry `row` of each list.
  struct Place {
    size_t shard, row;
  };
  struct Layout {
    std::vector<Shard> shards;
    std::vector<Place> places;  // one for each parameter
  };
  /// All that is kept for one parameter, when the layout changes. Empty handles: start from zero.
  struct Kept {
    std::vector<NDArray> state;
    NDArray count, master;
  };

  Parameters with_names(const Parameters& added) const;
  void check_group(detail::Problems& problems, const Parameters& added, const Group& group) const;
  void check_arrays(detail::Problems& problems, const Parameters& all, size_t first) const;
  void check_gradients(const std::vector<NDArray>& gradients, std::source_location where) const;
  void check_rate(double rate) const;
  void set_rate(size_t group, double rate);
  void lay_out(Layout& layout, size_t number, const Group& group, const Parameters& all, size_t first,
               size_t last, const std::vector<Kept>& kept, std::source_location where) const;
  /// The array of a parameter when the layout was made.
  const NDArray& weight(size_t parameter) const;
  Kept kept_for(size_t parameter) const;
  void follow(std::source_location where) const;

  const char* name_;
  std::vector<Group> groups_;   // `lr` is the current one
  std::vector<size_t> begins_;  // of the groups in parameters_
  double max_norm_ = 0;
  Parameters parameters_;
  mutable Layout layout_;  // follow() brings it to where the parameters are
  std::optional<LossScale> loss_scale_;
  NDArray norm_;
};

}  // namespace mx::optim
