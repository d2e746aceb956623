#include "nn/trainer.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <numeric>

#include "engine/base/check.h"
#include "ndarray/grad_mode.h"
#include "ndarray/priority.h"

namespace mx::nn {

OptimizerChoice::OptimizerChoice(const optim::SGDOptions& options, std::source_location where)
    : make_([options, where](const Parameters& p) {
        return std::make_unique<optim::SGD>(p, options, where);
      }) {}
OptimizerChoice::OptimizerChoice(const optim::AdamOptions& options, std::source_location where)
    : make_([options, where](const Parameters& p) {
        return std::make_unique<optim::Adam>(p, options, where);
      }) {}
OptimizerChoice::OptimizerChoice(const optim::AdamWOptions& options, std::source_location where)
    : make_([options, where](const Parameters& p) {
        return std::make_unique<optim::AdamW>(p, options, where);
      }) {}
OptimizerChoice::OptimizerChoice(const std::string& name, const AttrMap& options, std::source_location where)
    : make_([name, options, where](const Parameters& p) {
        return optim::make_optimizer(name, options, p, where);
      }) {}
OptimizerChoice::OptimizerChoice(Make make) : make_(std::move(make)) {
  MX_CHECK(make_ != nullptr, InvalidArgument,
           "[Trainer] expected a function that makes an optimiser, got an empty one");
}

Trainer::Trainer(const Parameters& parameters, const OptimizerChoice& optimizer,
                 std::shared_ptr<KVStore> store)
    : Trainer(std::vector<Parameters>{parameters}, optimizer, std::move(store)) {}

namespace {

// Every priority is above 0, the priority of the other operations of training. So when a layer's gradients
// are ready on every device, their sum runs before the rest of the backward pass. Parameters that the next
// forward pass needs first have the highest priority.
int priority_of(size_t i, size_t count) { return static_cast<int>(count - std::min(count, i)); }

void check_replicas(const std::vector<Parameters>& replicas, bool store) {
  MX_CHECK(!replicas.empty() && !replicas[0].empty(), InvalidArgument,
           "[Trainer] expected a replica with parameters, got none");
  MX_CHECK(replicas.size() == 1 || store, InvalidArgument, "[Trainer] expected a store for ", replicas.size(),
           " replicas, got none; pass KVStore::create(\"device\")");
  const Parameters& first = replicas[0];
  std::map<const void*, size_t> owners;  // the replica of each array
  for (size_t r = 0; r < replicas.size(); ++r) {
    MX_CHECK(replicas[r].size() == first.size(), InvalidArgument, "[Trainer] expected ", first.size(),
             " parameters in every replica, got ", replicas[r].size(), " in replica ", r);
    for (size_t i = 0; i < first.size(); ++i) {
      const NDArray &expected = first[i], &got = replicas[r][i];
      MX_CHECK(got.shape() == expected.shape() && got.dtype() == expected.dtype(), InvalidArgument,
               "[Trainer] expected parameter ", i, " of replica ", r, " as ", expected.dtype(), ' ',
               expected.shape(), ", got ", got.dtype(), ' ', got.shape());
      const auto [owner, added] = owners.emplace(&got.impl(), r);
      MX_CHECK(added || owner->second == r, InvalidArgument,
               "[Trainer] expected replicas with parameters of their own, got parameter ", i,
               " in the replicas ", owner->second, " and ", r,
               "; a copy of a module is another handle of it, "
               "nn::clone() makes a replica");
    }
  }
}

/// Returns, for each parameter of the optimiser, its index in the replica.
std::vector<size_t> places_in(const Parameters& replica, const optim::Optimizer& optimizer) {
  std::map<const void*, size_t> places;
  for (size_t i = 0; i < replica.size(); ++i) places.emplace(&replica[i].array().impl(), i);
  std::vector<size_t> result;
  for (const NamedParameter& parameter : optimizer.parameters()) {
    const auto found = places.find(&parameter.array().impl());
    MX_CHECK(
        found != places.end(), InvalidArgument,
        "[Trainer] expected an optimiser that holds only the replica's parameters, got one that also holds '",
        parameter.name, "'");
    result.push_back(found->second);
  }
  return result;
}

/// Returns the type of the sum of gradients: f32 for f16 and bf16, in which a sum could overflow. Optimisers
/// accept such gradients.
DType gradient_type(const NDArray& parameter) { return parameter.dtype() == f64 ? f64 : f32; }

}  // namespace

class Trainer::Keys {
 public:
  explicit Keys(std::shared_ptr<KVStore> store) : store_(std::move(store)) {
    static std::atomic<uint64_t> made{0};
    prefix_ = mx::detail::concat("Trainer ", made.fetch_add(1), ", parameter ");
  }
  ~Keys() {
    for (const Key& key : keys_) store_->erase(key.name);
  }
  Keys(const Keys&) = delete;
  Keys& operator=(const Keys&) = delete;

  void add(const std::string& name, const NDArray& parameter) {
    const std::string key = prefix_ + name;
    init(key, parameter);
    keys_.push_back({key, gradient_type(parameter)});
  }
  /// Returns the key of the optimiser's parameter k. Its stored array has the parameter's current gradient
  /// type.
  const std::string& key_for(size_t k, const NDArray& parameter) {
    Key& key = keys_[k];
    if (key.type != gradient_type(parameter)) {  // the model was converted
      store_->erase(key.name);
      init(key.name, parameter);
      key.type = gradient_type(parameter);
    }
    return key.name;
  }

 private:
  struct Key {
    std::string name;
    DType type;
  };

  void init(const std::string& key, const NDArray& parameter) {
    store_->init(key, zeros(parameter.shape(), gradient_type(parameter), parameter.context()));
  }

  std::shared_ptr<KVStore> store_;
  std::string prefix_;
  std::vector<Key> keys_;
};

Trainer::Trainer(const std::vector<Parameters>& replicas, const OptimizerChoice& optimizer,
                 std::shared_ptr<KVStore> store)
    : replicas_(replicas), store_(std::move(store)) {
  check_replicas(replicas_, store_ != nullptr);
  const Parameters& first = replicas_[0];
  optimizer_ = optimizer(first);
  MX_CHECK(optimizer_ != nullptr, InvalidArgument, "[Trainer] expected an optimiser, got an empty pointer");
  updated_ = places_in(first, *optimizer_);
  if (store_ == nullptr) return;
  sums_.resize(updated_.size());
  keys_ = std::make_shared<Keys>(store_);
  for (const NamedParameter& parameter : optimizer_->parameters()) keys_->add(parameter.name, parameter);
  synchronise();
}

optim::Optimizer& Trainer::optimizer() {
  MX_CHECK(optimizer_ != nullptr, InvalidState, "[Trainer] expected a trainer, got one that was moved from");
  return *optimizer_;
}

/// Returns the sum of the replicas' gradients of the optimiser's parameter k, or an empty handle if no
/// replica has a gradient.
NDArray Trainer::sum_gradients(size_t k) {
  const size_t i = updated_[k];
  std::vector<NDArray> parts;
  for (const Parameters& replica : replicas_)
    if (const NDArray grad = replica[i].grad(); grad.defined()) parts.push_back(grad.detach());
  if (parts.empty()) return {};
  const NDArray& parameter = replicas_[0][i];
  NDArray& sum = sums_[k];
  const DType type = gradient_type(parameter);
  if (!sum.defined() || sum.context() != parameter.context() || sum.dtype() != type)
    sum = empty(parameter.shape(), type, parameter.context());
  store_->pushpull(keys_->key_for(k, parameter), parts, sum,
                   {.priority = priority_of(i, replicas_[0].size())});
  return sum;
}

void Trainer::step() {
  if (store_ == nullptr) return optimizer().step();
  NoGrad pause;
  std::vector<NDArray> gradients(updated_.size());
  // The backward pass computes the gradients of the last layers first, so their sums are pushed first.
  std::vector<size_t> order(updated_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return updated_[a] > updated_[b]; });
  for (const size_t k : order) gradients[k] = sum_gradients(k);
  optimizer().step(gradients);
  std::vector<size_t> places = updated_;
  std::sort(places.begin(), places.end());
  for (const size_t i : places) copy_to_replicas(i);
}

void Trainer::synchronise() {
  NoGrad pause;
  for (size_t i = 0; !replicas_.empty() && i < replicas_[0].size(); ++i) copy_to_replicas(i);
}

void Trainer::copy_to_replicas(size_t i) {
  const PriorityScope priority(priority_of(i, replicas_[0].size()));
  for (size_t r = 1; r < replicas_.size(); ++r) NDArray(replicas_[r][i]).copy_from(replicas_[0][i]);
}

void Trainer::zero_grad() {
  for (const Parameters& replica : replicas_)
    for (const NamedParameter& parameter : replica)
      if (parameter.requires_grad()) parameter.set_grad({});
}

std::vector<NDArray> split_batch(const NDArray& batch, const std::vector<Context>& devices) {
  const auto parts = static_cast<int64_t>(devices.size());
  MX_CHECK(parts > 0, InvalidArgument, "[split_batch] expected a device, got none");
  MX_CHECK(batch.rank() > 0 && batch.size(0) >= parts, InvalidArgument, "[split_batch] expected at least ",
           parts, " rows, one per device, got shape ", batch.shape());
  const int64_t rows = batch.size(0);
  std::vector<NDArray> result;
  int64_t begin = 0;
  for (int64_t k = 0; k < parts; ++k) {
    const int64_t end = begin + rows / parts + (k < rows % parts ? 1 : 0);
    result.push_back(batch.slice(0, Slice{begin, end}).to(devices[static_cast<size_t>(k)]));
    begin = end;
  }
  return result;
}

}  // namespace mx::nn
