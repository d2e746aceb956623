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
//   nn::Trainer trainer(nn::parameters_of(nets), optim::SGDOptions{.lr = 0.1}, KVStore::create("device"));
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
// Several trainers may share a store, also with other keys of the program: each trainer uses its own keys,
// "Trainer <n>, parameter <name>", and erases them when it is destroyed. If several processes share the
// store, all must create their trainers in the same order.
//
// Thread-safety: one thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <source_location>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "kvstore/kvstore.h"
#include "ndarray/ndarray.h"
#include "operators/parameter.h"
#include "optim/optimizers.h"

namespace mx::nn {

/// The optimiser that a trainer creates. Its errors name the line `where`, which chose the options.
class OptimizerChoice {
 public:
  using Make = std::function<std::unique_ptr<optim::Optimizer>(const Parameters&)>;
  OptimizerChoice(const optim::SGDOptions& options,
                  std::source_location where = std::source_location::current());
  OptimizerChoice(const optim::AdamOptions& options,
                  std::source_location where = std::source_location::current());
  OptimizerChoice(const optim::AdamWOptions& options,
                  std::source_location where = std::source_location::current());
  /// Chooses an optimiser by its name; see optim::make_optimizer().
  OptimizerChoice(const std::string& name, const AttrMap& options,
                  std::source_location where = std::source_location::current());
  /// Chooses a function that creates the optimiser from the parameters of the first replica. Parameters that
  /// the function leaves out are not updated. Throws InvalidArgument for an empty function.
  OptimizerChoice(Make make);
  template <class F>
  requires(!std::is_base_of_v<OptimizerChoice, F> &&
           std::is_invocable_r_v<std::unique_ptr<optim::Optimizer>, F, const Parameters&>)
      OptimizerChoice(F make)
      : OptimizerChoice(Make(std::move(make))) {}

  std::unique_ptr<optim::Optimizer> operator()(const Parameters& parameters) const {
    return make_(parameters);
  }

 private:
  Make make_;
};

class Trainer {
 public:
  /// Trains one replica. If there is a store, the gradients go through it, as with several replicas.
  Trainer(const Parameters& parameters, const OptimizerChoice& optimizer,
          std::shared_ptr<KVStore> store = nullptr);
  /// Trains several replicas: one list for each, with the same parameters in the same order. Throws
  /// InvalidArgument if the lists differ in number, shape or type, if two replicas share a parameter, if
  /// there are several replicas and no store, and if the optimiser has parameters that the first replica does
  /// not have.
  Trainer(const std::vector<Parameters>& replicas, const OptimizerChoice& optimizer,
          std::shared_ptr<KVStore> store);
  Trainer(Trainer&&) noexcept = default;
  Trainer& operator=(Trainer&&) noexcept = default;

  /// Sums the gradients, updates the first replica and copies its parameters to the others. Returns at once.
  /// A parameter for which no replica has a gradient stays unchanged. Throws InvalidState for a trainer that
  /// was moved from.
  void step();
  /// Removes the gradients of all replicas.
  void zero_grad();

  /// Returns the optimiser of the first replica's parameters, for schedules and checkpoints.
  optim::Optimizer& optimizer();
  size_t replicas() const { return replicas_.size(); }
  /// Copies the first replica's parameters to the others. Call it after loading the first replica.
  void synchronise();

 private:
  class Keys;

  NDArray sum_gradients(size_t parameter);
  void copy_to_replicas(size_t parameter);

  std::vector<Parameters> replicas_;
  std::shared_ptr<KVStore> store_;
  std::shared_ptr<Keys> keys_;  // of this trainer in the store
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::vector<size_t> updated_;  // entry k: index in a replica of the optimiser's parameter k
  std::vector<NDArray> sums_;    // sums of gradients, on the first replica's devices; created on first use
};

/// Splits a batch along its first dimension into one part per device. If the size is not divisible, the first
/// parts have one row more. Throws InvalidArgument for fewer rows than devices.
std::vector<NDArray> split_batch(const NDArray& batch, const std::vector<Context>& devices);

/// Moves the model to the first device, and returns it with clones of it on the others. Throws
/// InvalidArgument if there is no device.
template <class M>
std::vector<M> replicate(M& model, const std::vector<Context>& devices) {
  MX_CHECK(!devices.empty(), InvalidArgument, "[replicate] expected at least one device, got none");
  std::vector<M> replicas{model};
  for (size_t i = 1; i < devices.size(); ++i) replicas.push_back(clone(model));
  for (size_t i = 0; i < devices.size(); ++i) replicas[i].to(devices[i]);
  return replicas;
}

template <class M>
std::vector<Parameters> parameters_of(const std::vector<M>& models) {
  std::vector<Parameters> all;
  for (const M& model : models) all.push_back(model.parameters());
  return all;
}

}  // namespace mx::nn
