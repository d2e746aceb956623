// Trainer: updates all replicas of a model, on one or several devices of this process.
//
//   std::shared_ptr<KVStore> kv = KVStore::create("device");
//   nn::Trainer trainer(net.parameters(), optim::SGDOptions{.lr = 0.1}, kv);
//   ...
//   loss.backward();  trainer.step();  trainer.zero_grad();
//
// With several replicas, each computes the gradients of its part of the batch. step() adds the gradients up
// in the order of the replicas, updates the first replica with the sum, and copies its parameters to the
// others. All of these are operations of the engine; those of the first parameters have the highest priority.
// So the sum of a layer's gradients runs while the backward pass computes those of earlier layers, and the
// next forward pass starts as soon as the parameters of the first layers have been copied. Weight the losses
// so that the sum of the gradients is the gradient of the whole batch.
//
//   std::vector<Net> nets = nn::replicate(net, {gpu(0), gpu(1)});
//   nn::Trainer trainer(nets, optim::SGDOptions{.lr = 0.1}, KVStore::create("device"));
//   const std::vector<NDArray> parts = nn::split_batch(images, {gpu(0), gpu(1)});
//
// Parameters can be grouped by their names, each group with its own options; the order does not matter:
//
//   nn::Trainer trainer(net.parameters(), [](const Parameters& all) {
//     const auto is_bias = [](const NamedParameter& p) { return p.name.ends_with("bias"); };
//     auto optimizer =
//         std::make_unique<optim::AdamW>(all.where(is_bias), optim::AdamWOptions{.weight_decay = 0});
//     optimizer->add_group(all.where(std::not_fn(is_bias)), {.weight_decay = 0.1});
//     return optimizer;
//   });
//
// A trainer holds Parameters, so a module may be moved after its trainer was created.
//
// Several processes. If the store spans several processes, each trains its own replicas with its own part of
// the batch. The parameters and buffers of process 0 are copied to all others when the trainer is created and
// in synchronise(). step() sums the gradients over all processes, so all keep equal parameters: for f32 and
// f64 bit for bit those of one process that accumulates the same parts in the order of the ranks;
// docs/distributed.md names two exceptions: parameters without gradient, and row-sparse gradients. (Gradients
// of f16 and bf16 are summed in f32; one process that accumulates them rounds after each part.) Gradients are
// summed in buckets (TrainerOptions::bucket_bytes), the last layers first, while the backward pass goes on;
// the optimiser updates bucket by bucket. Buckets of the first layers overtake those of the last ones that
// wait, if the store has KVStoreOptions::order = KVOrder::priority. The program must be the same in all
// processes: a parameter that has no gradient in one of them contributes zeros. Parameters that require no
// gradient take no part.
//
//   std::shared_ptr<KVStore> kv = KVStore::create("dist_allreduce");
//   nn::Trainer trainer(net, optim::AdamOptions{}, kv, {.shard_optimizer = true});
//
// Unless TrainerOptions::update_on_store is set, a store is used for communication only; it keeps no copy of
// the parameters. The keys are the names of the parameters ("0.weight"; without names their numbers); those
// of the second trainer on a store begin with "trainer 1: ", and so on. If several processes share the store,
// all must create their trainers in the same order.
//
// Failures. Errors name the line that called the trainer. If the gradient of a parameter fails and there is a
// store, the parameters of its bucket stay unchanged, with the error; other buckets may have been updated.
// recover() goes on without the error.
//
// Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "kvstore/kvstore.h"
#include "ndarray/detail/place.h"
#include "ndarray/ndarray.h"
#include "nn/module.h"
#include "operators/parameter.h"
#include "optim/optimizers.h"

namespace mx::nn {

/// The optimiser that a trainer creates. Its errors name the line `where`, which chose the options.
class OptimizerChoice {
 public:
  using Make = std::function<std::unique_ptr<optim::Optimizer>(const Parameters&)>;
  /// Chooses the optimiser of the options, e.g. optim::SGDOptions.
  template <class Options>
  requires requires { typename Options::Rule; }
  OptimizerChoice(const Options& options, std::source_location where = std::source_location::current())
      : make_([options, where](const Parameters& parameters) {
          return std::make_unique<optim::RuleOptimizer<typename Options::Rule>>(parameters, options, where);
        }) {}
  /// Chooses an optimiser by its name; see optim::make_optimizer().
  OptimizerChoice(const std::string& name, const AttrMap& options,
                  std::source_location where = std::source_location::current());
  /// Chooses a function that creates the optimiser from the parameters of the first replica. Parameters that
  /// the function leaves out are not updated. Throws InvalidArgument for an empty function.
  ///
  /// With TrainerOptions::shard_optimizer the function is called twice: with the parameters, and then with
  /// the flat portions of them that this process updates. It must choose the same parameters, groups and
  /// options both times, so it chooses by name (or requires_grad()), and not by shape. The first optimiser,
  /// which has the state of all parameters, is dropped at once.
  OptimizerChoice(Make make, std::source_location where = std::source_location::current());
  template <class F>
  requires(!std::is_base_of_v<OptimizerChoice, F> &&
           std::is_invocable_r_v<std::unique_ptr<optim::Optimizer>, F, const Parameters&>)
      OptimizerChoice(F make, std::source_location where = std::source_location::current())
      : OptimizerChoice(Make(std::move(make)), where) {}

  std::unique_ptr<optim::Optimizer> operator()(const Parameters& parameters) const {
    return make_(parameters);
  }
  /// Returns whether the program's own function makes the optimiser.
  bool is_function() const { return is_function_; }

 private:
  Make make_;
  bool is_function_ = false;
};

struct TrainerOptions {
  int64_t bucket_bytes = 2 << 20;  ///< gradients that are summed and updated together; at least one parameter
  /// With several processes: each keeps the optimiser's state of its part of the parameters only. It sums the
  /// gradients of that part, updates it, and sends it to the others before the next forward pass. Results are
  /// the same. Not with `max_norm`, a dynamic loss scale, or an optimiser that needs whole parameters (LARS,
  /// LAMB), and only with one replica in each process. A step throws InvalidState if parameters were frozen,
  /// unfrozen, moved or converted after the trainer was made.
  bool shard_optimizer = false;
  /// Compares checksums of the parameters between all processes every so many steps; 0: as the store's
  /// option says. A later step() then throws ProtocolError, which names the parameter and the processes;
  /// synchronise() makes them equal again. Throws InvalidState with the store "dist_async".
  int64_t check_every = 0;
  /// The store keeps the parameters, and its optimiser updates them (KVStore::set_optimizer); step() pushes
  /// gradients and pulls parameters. For "dist_async": the processes do not wait for each other. The
  /// optimiser of the trainer only tells name, options and learning rate: it must have one group, and neither
  /// max_norm nor a loss scale. synchronise() drops the state of the store's optimiser.
  bool update_on_store = false;
  /// Each step copies the buffers of the first replica of process 0, such as running statistics, to all other
  /// replicas and processes, as PyTorch's DistributedDataParallel does. false: each replica keeps its own.
  /// With "dist_async", whose processes do not wait for each other, each process keeps its own.
  bool broadcast_buffers = true;
};

namespace detail {
class GradientBuckets;
struct Choice;
}  // namespace detail

template <class M>
std::vector<Parameters> parameters_of(const std::vector<M>& models) {
  std::vector<Parameters> all;
  for (const M& model : models) all.push_back(model.parameters());
  return all;
}

class Trainer {
 public:
  /// Trains one replica. If there is a store, the gradients go through it, as with several replicas.
  Trainer(const Parameters& parameters, const OptimizerChoice& optimizer,
          std::shared_ptr<KVStore> store = nullptr, const TrainerOptions& options = {},
          std::source_location where = std::source_location::current());
  /// The same for the parameters of a module, and its buffers.
  template <class M>
  requires kIsModule<M> Trainer(const M& module, const OptimizerChoice& optimizer,
                                std::shared_ptr<KVStore> store = nullptr, const TrainerOptions& options = {},
                                std::source_location where = std::source_location::current())
      : Trainer({module.parameters()}, optimizer, std::move(store), options, buffers_of(module), where) {}
  /// Trains several replicas: one list for each, with the same parameters in the same order. Throws
  /// InvalidArgument if the lists differ in number, shape or type, if two replicas share a parameter, if
  /// there are several replicas and no store, if the optimiser has parameters that the first replica does not
  /// have, and if it has none although some of them require gradients. With shard_optimizer, throws
  /// InvalidArgument also for a parameter that is not contiguous, and for a function that chooses otherwise
  /// for the portions of parameters than for the parameters. With several processes, throws what
  /// synchronise() throws, and ProtocolError, on all of them, if the function has failed in one process, or
  /// has chosen other parameters, groups or options there; the message names the processes and the first
  /// parameter.
  Trainer(const std::vector<Parameters>& replicas, const OptimizerChoice& optimizer,
          std::shared_ptr<KVStore> store, const TrainerOptions& options = {},
          std::source_location where = std::source_location::current());
  /// The same for modules, such as nn::replicate() returns, with their buffers. Throws InvalidArgument also
  /// if there is none.
  template <class M>
  requires kIsModule<M> Trainer(const std::vector<M>& models, const OptimizerChoice& optimizer,
                                std::shared_ptr<KVStore> store, const TrainerOptions& options = {},
                                std::source_location where = std::source_location::current())
      : Trainer(parameters_of(models), optimizer, std::move(store), options, buffers_of(models), where) {}
  Trainer(Trainer&&) noexcept = default;
  Trainer& operator=(Trainer&&) noexcept = default;

  /// Sums the gradients, updates the first replica and copies its parameters to the others. Returns at once.
  /// With one process, a parameter for which no replica has a gradient stays unchanged. Throws InvalidState
  /// for a trainer that was moved from, and ProtocolError if parameters have diverged between processes.
  void step(std::source_location where = std::source_location::current());
  /// After a bad batch (docs/optim.md): recovers the optimiser and the buffers of the first replica
  /// (Optimizer::recover(), Module::recover()), and copies parameters and buffers to the other replicas as a
  /// step does. Waits for all of them. Throws InvalidState, naming the arrays, if some are lost; on
  /// accelerators, call optimizer().set_recoverable() before training. Throws InvalidState, and changes
  /// nothing, with update_on_store, whose parameters are in the store, and with several processes, whose
  /// store cannot be used after an error: load a checkpoint then. Gradients keep their errors: call
  /// zero_grad().
  ///
  ///   try { loss.item<float>(); } catch (const Error&) { trainer.zero_grad(); trainer.recover(); continue; }
  void recover(std::source_location where = std::source_location::current());
  /// Removes the gradients of all replicas.
  void zero_grad();

  /// Returns the optimiser of the first replica's parameters, for schedules and checkpoints. With
  /// shard_optimizer, it has the parts of this process only; use state_dict() for checkpoints.
  optim::Optimizer& optimizer();
  /// The state of the optimiser as of one process: Optimizer::state_dict(). With shard_optimizer and with
  /// update_on_store, both are called by all processes, and load_state_dict() takes the whole state.
  /// With shard_optimizer, state_dict() returns copies of the parts of all. With update_on_store, it returns
  /// KVStore::state_dict(), which contains the parameters too, and which only process 0 may get.
  NamedArrays state_dict(std::source_location where = std::source_location::current());
  void load_state_dict(const NamedArrays& state,
                       std::source_location where = std::source_location::current());
  size_t replicas() const { return replicas_.size(); }
  /// Copies the first replica's parameters to the others, and its buffers too unless `broadcast_buffers` is
  /// false. Before that, the parameters and buffers of process 0 are copied to all processes, whatever that
  /// option says. With several processes it waits for them, and throws ProtocolError, naming the first
  /// parameter that differs, if they have other models. Call it after loading the first replica. Then load
  /// the optimiser's state, in all processes: master copies of f16 and bf16 parameters are set to the
  /// parameters.
  void synchronise(std::source_location where = std::source_location::current());

 private:
  /// Functions that return the buffers of the replicas. Both are empty if the trainer has no modules, and the
  /// second one if it was made of one module.
  struct Buffers {
    std::function<NamedArrays()> first;                // of the first replica
    std::function<std::vector<NamedArrays>()> others;  // of the replicas after the first one
  };
  template <class M>
  static Buffers buffers_of(const M& module) {
    return {[module] { return module.named_buffers(); }, {}};
  }
  template <class M>
  static Buffers buffers_of(const std::vector<M>& models) {
    if (models.empty()) return {};
    Buffers buffers = buffers_of(models[0]);
    buffers.others = [others = std::vector<M>(models.begin() + 1, models.end())] {
      std::vector<NamedArrays> all;
      for (const M& model : others) all.push_back(model.named_buffers());
      return all;
    };
    return buffers;
  }

  Trainer(const std::vector<Parameters>& replicas, const OptimizerChoice& optimizer,
          std::shared_ptr<KVStore> store, const TrainerOptions& options, Buffers buffers,
          std::source_location where);

  bool several_processes() const { return store_ != nullptr && store_->size() > 1; }
  detail::Choice choose(const OptimizerChoice& make, std::source_location where);
  NDArray sum_gradients(size_t parameter, std::source_location where);
  void step_in_process(std::source_location where);
  void step_across_processes(std::source_location where);
  // With update_on_store, in trainer_on_store.cc.
  void put_on_store(std::source_location where);
  void step_on_store(std::source_location where);
  void load_on_store(const NamedArrays& state, std::source_location where);
  void split_updates();
  void check_parameters(std::source_location where);
  void copy_to_replicas(size_t parameter, std::source_location where);
  void broadcast_buffers(std::source_location where);
  void copy_buffers_to_replicas(std::source_location where);
  std::string key_of(size_t parameter) const;

  std::vector<Parameters> replicas_;
  std::shared_ptr<KVStore> store_;
  TrainerOptions options_;
  Buffers buffers_;
  std::string prefix_;                                // of keys
  std::shared_ptr<detail::GradientBuckets> buckets_;  // with several processes
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::vector<size_t> updated_;  // entry k: index in a replica of the optimiser's parameter k
  std::vector<NDArray> sums_;    // sums of gradients, on the first replica's devices; created on first use
  bool on_store_ = false;        // the store has the parameters
  double store_rate_ = 0;        // learning rate of the store's optimiser
  int64_t steps_ = 0;
  NDArray check_;  // token of the last comparison of parameters
};

/// Splits a batch along its first dimension into one part per device. If the size is not divisible, the first
/// parts have one row more. Throws InvalidArgument for fewer rows than devices.
std::vector<NDArray> split_batch(const NDArray& batch, const std::vector<Context>& devices,
                                 std::source_location where = std::source_location::current());

/// Moves the model to the first device, and returns it with clones of it on the others. Throws
/// InvalidArgument if there is no device.
template <class M>
std::vector<M> replicate(M& model, const std::vector<Context>& devices,
                         std::source_location where = std::source_location::current()) try {
  MX_CHECK(!devices.empty(), InvalidArgument, "[replicate] expected at least one device, got none");
  std::vector<M> replicas{model};
  for (size_t i = 1; i < devices.size(); ++i) replicas.push_back(clone(model));
  for (size_t i = 0; i < devices.size(); ++i) replicas[i].to(devices[i]);
  return replicas;
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

}  // namespace mx::nn
