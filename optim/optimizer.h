// Optimizer: updates parameters with their gradients.
//
//   optim::SGD opt(net.parameters(), {.lr = 0.1, .momentum = 0.9});      // optimizers.h
//   for (...) {
//     NDArray loss = ...;
//     opt.zero_grad();
//     loss.backward();
//     opt.step();
//   }
//
// Parameters belong to groups, each with its own options and multipliers. The constructor makes the first
// group, add_group() makes further ones. Parameters may be on any devices: a step is one operation for each
// group, device and type. For each weight of f16 or bf16 the optimiser keeps a master copy in f32, which a
// step updates; the weight gets the rounded value.
//
// An optimiser holds Parameters, so it follows a module that is moved to another device or type: the next
// call moves the state as well. An optimiser that was given NDArrays keeps these arrays and does not follow
// the module.
//
// Only loading waits. State is created with the group. The numbers that change (the learning rate, the number
// of steps of each parameter) are arrays, so a program that is recorded and replayed uses their current
// values. The formulas are those of torch.optim (update.h).
//
// A row-sparse gradient (operators/row_sparse.h) updates only the rows that it holds, with their state: the
// other rows see neither weight decay nor the decay of a momentum. The number of steps is counted for the
// whole parameter. This is the lazy update of MXNet, and of torch's SparseAdam. Optimisers that need whole
// parameters (elementwise() is false) read the dense form.
//
// A parameter without a gradient stays unchanged, with its state. If the operation that computes a gradient
// fails, the step of its group is skipped: its parameters and state are poisoned with that error until they
// are loaded or recovered (recover(); on accelerators with set_recoverable()).
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
#include "operators/row_sparse.h"
#include "optim/loss_scale.h"
#include "optim/update.h"

namespace mx::optim {

namespace detail {
class Problems;
}  // namespace detail

using mx::Parameters;

/// Factors of a group's learning rate and weight decay; at least 0. A schedule does not change them.
struct Multipliers {
  double lr = 1;
  double weight_decay = 1;
};

class Optimizer {
 public:
  virtual ~Optimizer();
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Returns the name that make_optimizer() takes.
  const char* name() const { return name_; }
  /// Returns a group's options in the form that make_optimizer() takes; `lr` is the initial rate.
  virtual AttrMap option_map(size_t group = 0) const = 0;

  /// Returns false if the update of an element depends on others of its parameter (LARS, LAMB). Then a
  /// parameter cannot be updated in portions, as servers and sharded optimisers do it.
  virtual bool elementwise() const { return true; }

  size_t groups() const { return groups_.size(); }
  /// Returns the parameters of all groups, in the order in which they were added, each with a name that state
  /// dictionaries and messages use. The name of a parameter without one is its number: "0", "1". If two have
  /// the same name ("weight" of two modules), the number of the later one is appended: "weight@3".
  const Parameters& parameters() const { return parameters_; }
  /// Returns the group of a parameter, which is given by its index in parameters(). Throws InvalidArgument if
  /// there is no such parameter.
  size_t group_of(size_t parameter) const;
  /// Returns a group's factors.
  const Multipliers& multipliers(size_t group = 0) const { return this->group(group).multipliers; }

  /// Updates all parameters that have a gradient. Records nothing (NoGrad). Throws InvalidArgument, listing
  /// all gradients that do not fit, before anything is changed, and InvalidState if no parameter requires a
  /// gradient.
  void step(std::source_location where = std::source_location::current());
  /// Updates with these gradients, in the order of parameters(); an empty handle means no gradient.
  void step(const std::vector<NDArray>& gradients,
            std::source_location where = std::source_location::current());

  /// A set of parameters that one step updates separately; see set_parts().
  struct Part {
    std::vector<size_t> parameters;  ///< indices in parameters()
    int priority = 0;                ///< of the operations that update them
  };
  /// Splits the steps: each updates one part after the other, by operations of their own. So the update of a
  /// part waits for the gradients of that part only, unless `max_norm` or a dynamic loss scale needs all.
  /// Results are the same. If a gradient fails, only its part is skipped. Parameters that are in no part are
  /// updated first. Throws InvalidArgument for an index that is out of range or listed twice.
  void set_parts(const std::vector<Part>& parts,
                 std::source_location where = std::source_location::current());

  /// Removes all gradients; if `in_place`, sets the existing ones to zero instead.
  void zero_grad(bool in_place = false);

  /// Returns the group's rate, without its multiplier.
  double learning_rate(size_t group = 0) const;
  /// Sets the rate of all groups, or of one, for the following steps. Throws InvalidArgument for a rate that
  /// is negative or not finite.
  void set_learning_rate(double rate);
  void set_learning_rate(double rate, size_t group);

  /// Sets the scale of the loss from which gradients are computed. step() divides gradients by the scale
  /// before it clips them. Without a value, gradients are those of the loss itself.
  void set_loss_scale(std::optional<LossScale> scale) {
    loss_scale_ = std::move(scale);
    unscaled_ = false;
  }
  const std::optional<LossScale>& loss_scale() const { return loss_scale_; }
  /// Divides the gradients by the loss scale now instead of in the next step(), for code that reads or clips
  /// them in between, as GradScaler.unscale_() of torch. The next step() still skips gradients that are not
  /// finite. Throws InvalidState without a loss scale, and if it was called since the last step or
  /// zero_grad(). Not for the optimiser of a trainer, which reads gradients of all replicas.
  ///
  ///   scale(loss).backward();  opt.unscale();  optim::clip_grad_value(net.parameters(), 0.5);  opt.step();
  void unscale(std::source_location where = std::source_location::current());
  /// Returns the 2-norm of all gradients together in the last step, before clipping; rank 0. Returns an empty
  /// handle if neither `max_norm` nor a dynamic loss scale needed it.
  const NDArray& gradient_norm() const { return norm_; }

  /// Sets the master copies to the values of their weights. Call it after weights of f16 or bf16 were changed
  /// by anything but this optimiser. Otherwise the next step overwrites that change.
  void sync_masters();

  /// Undoes the damage of steps that were skipped because a gradient had failed (a bad batch): parameters,
  /// copies, state, counts and the loss scale that are poisoned only by skipped steps hold their last good
  /// values again. Waits for them. Throws InvalidState, naming the arrays, if some are lost: their own
  /// operation has failed, or, on an accelerator, a step was enqueued before the error was known (see
  /// set_recoverable()). The others are recovered then. Gradients keep their errors: call zero_grad() or
  /// compute new ones. Module::recover() and Averages::recover() do the same for buffers and averages.
  ///
  ///   try { loss.item<float>(); } catch (const Error&) { opt.zero_grad(); opt.recover(); continue; }
  void recover(std::source_location where = std::source_location::current());

  /// Makes recover() work on accelerators as well; on the CPU it always works. An accelerator gets operations
  /// before those that they depend on have ended. So a step may be in its queue when a gradient turns out to
  /// have failed, and then runs on undefined data: the parameters are lost. With `on`, the host enqueues the
  /// update of a part (set_parts()) only when the gradients of that part have been computed without an error.
  /// Its cost: the host cannot prepare the next step meanwhile, so the accelerator is idle for some
  /// microseconds in each step. Has no effect on steps that are recorded for a replay: an error in a replay
  /// poisons all that the replay writes.
  void set_recoverable(bool on = true) { recoverable_ = on; }
  bool recoverable() const { return recoverable_; }

  /// Returns all state that the next steps depend on, besides parameters, options and the loss scale:
  /// "group.<i>.learning_rate", and "state.<parameter>.<what>" with the names of torch ("momentum_buffer",
  /// "exp_avg", "exp_avg_sq", "step") and "master". The arrays are those in use: a step changes them. Use
  /// clone() to keep their values.
  NamedArrays state_dict() const;
  /// Loads arrays from any device. Throws InvalidArgument, listing all that are missing, unknown or of
  /// another shape or type, and the error of a poisoned array, before anything is changed. Waits for `state`.
  /// Clears errors that have poisoned the state of this optimiser.
  void load_state_dict(const NamedArrays& state,
                       std::source_location where = std::source_location::current());

 protected:
  /// The requirements of a rule for a group.
  struct Group {
    double lr = 0;
    Multipliers multipliers{};
    double max_norm = 0;               ///< limit of the norm over all groups; 0: that of the other groups
    std::vector<std::string> state{};  ///< names of the state arrays of each parameter
    bool counts = false;               ///< the rule needs the number of each parameter's step
    std::vector<double> initial{};     ///< first value of each state; empty: all are zero
  };

  /// `name` must outlive the optimiser.
  explicit Optimizer(const char* name) : name_(name) {}

  /// Adds a group. Throws InvalidArgument, listing all invalid parameters, before anything is changed.
  void add(const Parameters& parameters, const Group& group, std::source_location where);
  /// Runs one step of some of the group's parameters, by sgd_update() or a similar function.
  virtual void update(size_t group, const UpdateArrays& arrays, const UpdateState& state,
                      const UpdateNumbers& numbers, std::source_location where) const = 0;
  /// Throws InvalidArgument if there is no such group.
  const Group& group(size_t i) const;

 private:
  /// The parameters of a group that one operation updates: those of one part, on one device and of one type.
  struct Shard {
    size_t group, part;
    std::vector<size_t> members;  // indices in parameters_
    UpdateArrays arrays;          // its gradients are set only during a step
    UpdateState state;
    UpdateNumbers numbers;

    bool masters() const { return !arrays.copies.empty(); }
  };
  /// The position of a parameter: entry `row` of each list of shards[shard].
  struct Place {
    size_t shard, row;
  };
  struct Layout {
    std::vector<Shard> shards;
    std::vector<Place> places;  // one for each parameter
  };
  /// The state of one parameter, to be moved to a new layout. Empty handles mean first values.
  struct Kept {
    std::vector<NDArray> state;
    NDArray count, master;
  };

  void check_group(detail::Problems& problems, const Parameters& added, const Group& group) const;
  void check_arrays(detail::Problems& problems, const Parameters& all, size_t first) const;
  void check_gradients(const std::vector<NDArray>& gradients, std::source_location where) const;
  void check_rate(double rate) const;
  void set_rate(size_t group, double rate);
  void lay_out(Layout& layout, size_t number, const Group& group, const Parameters& all, size_t first,
               size_t last, const std::vector<Kept>& kept, std::source_location where) const;
  /// Returns the array that a parameter had when the layout was made.
  const NDArray& weight(size_t parameter) const;
  Kept kept_for(size_t parameter) const;
  void follow(std::source_location where) const;
  void renew_layout(std::source_location where) const;
  size_t part_of(size_t parameter) const { return parameter < part_of_.size() ? part_of_[parameter] : 0; }
  void wait_for_gradients(const std::vector<NDArray>& gradients, std::source_location where) const;
  void step_shard(Shard& shard, const std::vector<NDArray>& gradients, const NDArray& scale,
                  const NDArray& skip, std::source_location where) const;
  void step_rows(const Shard& shard, size_t row, const RowSparse& gradient, std::source_location where) const;

  const char* name_;
  std::vector<Group> groups_;   // `lr` is the current rate
  std::vector<size_t> begins_;  // index in parameters_ of each group's first parameter
  double max_norm_ = 0;
  Parameters parameters_;
  std::vector<size_t> part_of_;       // by parameter: 0: in no part, otherwise 1 + the index of the part
  std::vector<int> part_priorities_;  // by the index of the part
  mutable Layout layout_;             // follow() updates it if parameters have moved
  std::optional<LossScale> loss_scale_;
  bool recoverable_ = false;
  bool unscaled_ = false;  // the gradients of the next step are divided by the scale
  NDArray norm_;
};

}  // namespace mx::optim
