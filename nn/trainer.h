// Trainer: one step of all replicas of a model, on one or several devices of this process.
//
//   std::shared_ptr<KVStore> kv = KVStore::create("device");
//   nn::Trainer trainer(net.parameters(), optim::SGDOptions{.lr = 0.1}, kv);
//   ...
//   loss.backward();  trainer.step();  trainer.zero_grad();
//
// With several replicas, each computes the gradients of its part of the batch; step() adds them up in the
// order of the replicas, changes the first replica by the sum, and copies its parameters to the others. All
// of it is operations of the engine, those of the first parameters with the highest priority, so that the sum
// of a layer's gradients runs while those of the layers before it are being computed, and the next forward
// pass begins with the layers that have arrived. Losses should be weighed so that the sum of gradients is
// what is meant.
//
//   std::vector<Net> nets = nn::replicate(net, {gpu(0), gpu(1)});
//   nn::Trainer trainer(nn::parameters_of(nets), optim::SGDOptions{.lr = 0.1}, KVStore::create("device"));
//   const std::vector<NDArray> parts = nn::split_batch(images, {gpu(0), gpu(1)});
//
// Several trainers may share a store, and a program may have keys of its own in it: each trainer has keys
// that nobody else has, and takes them away when it ends. Where several processes share the store, all make
// their trainers in the same order.
//
// Thread-safety: one thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kvstore/kvstore.h"
#include "ndarray/ndarray.h"
#include "optim/optimizers.h"

namespace mx::nn {

/// Which optimiser a trainer makes.
class OptimizerChoice {
 public:
  using Make = std::function<std::unique_ptr<optim::Optimizer>(const optim::Parameters&)>;
  OptimizerChoice(const optim::SGDOptions& options);
  OptimizerChoice(const optim::AdamOptions& options);
  OptimizerChoice(const optim::AdamWOptions& options);
  /// By name, as optim::make_optimizer().
  OptimizerChoice(const std::string& name, const AttrMap& options);
  OptimizerChoice(Make make) : make_(std::move(make)) {}

  std::unique_ptr<optim::Optimizer> operator()(const optim::Parameters& parameters) const {
    return make_(parameters);
  }

 private:
  Make make_;
};

class Trainer {
 public:
  /// One replica. With a store its gradients go through it, as those of several do.
  Trainer(const std::vector<NDArray>& parameters, const OptimizerChoice& optimizer,
          std::shared_ptr<KVStore> store = nullptr);
  /// One list for each replica, the same parameters in the same order. Throws InvalidArgument where they
  /// differ in number, shape or type, and for several replicas without a store.
  Trainer(const std::vector<std::vector<NDArray>>& replicas, const OptimizerChoice& optimizer,
          std::shared_ptr<KVStore> store);

  /// Returns at once. A parameter for which no replica has a gradient stays as it is.
  void step();
  /// Of all replicas.
  void zero_grad();

  /// Of the first replica's parameters: for schedules and checkpoints.
  optim::Optimizer& optimizer() { return *optimizer_; }
  size_t replicas() const { return replicas_.size(); }
  /// Copies the first replica's parameters to the others: to be called after they were loaded.
  void synchronise();

 private:
  std::vector<std::vector<NDArray>> replicas_;
  std::shared_ptr<KVStore> store_;
  class Keys;
  std::shared_ptr<Keys> keys_;  // of its own in the store
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::vector<NDArray> sums_;  // of gradients, on the first replica's devices; made with the first one
};

/// Parts of about the same size along the first dimension, one per device, on it; the first ones are larger
/// by one where it does not divide. Throws InvalidArgument for fewer rows than devices.
std::vector<NDArray> split_batch(const NDArray& batch, const std::vector<Context>& devices);

/// The model on the first device, and clones of it on the others.
template <class M>
std::vector<M> replicate(M& model, const std::vector<Context>& devices) {
  std::vector<M> replicas{model};
  for (size_t i = 1; i < devices.size(); ++i) replicas.push_back(clone(model));
  for (size_t i = 0; i < devices.size(); ++i) replicas[i].to(devices[i]);
  return replicas;
}

template <class M>
std::vector<std::vector<NDArray>> parameters_of(const std::vector<M>& models) {
  std::vector<std::vector<NDArray>> all;
  for (const M& model : models) all.push_back(model.parameters());
  return all;
}

}  // namespace mx::nn
