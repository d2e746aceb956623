#include "nn/trainer.h"

#include <algorithm>
#include <atomic>

#include "engine/base/check.h"
#include "ndarray/grad_mode.h"
#include "ndarray/priority.h"

namespace mx::nn {

OptimizerChoice::OptimizerChoice(const optim::SGDOptions& options)
    : make_([options](const optim::Parameters& p) { return std::make_unique<optim::SGD>(p, options); }) {}
OptimizerChoice::OptimizerChoice(const optim::AdamOptions& options)
    : make_([options](const optim::Parameters& p) { return std::make_unique<optim::Adam>(p, options); }) {}
OptimizerChoice::OptimizerChoice(const optim::AdamWOptions& options)
    : make_([options](const optim::Parameters& p) { return std::make_unique<optim::AdamW>(p, options); }) {}
OptimizerChoice::OptimizerChoice(const std::string& name, const AttrMap& options)
    : make_([name, options](const optim::Parameters& p) { return optim::make_optimizer(name, options, p); }) {
}

Trainer::Trainer(const std::vector<NDArray>& parameters, const OptimizerChoice& optimizer,
                 std::shared_ptr<KVStore> store)
    : Trainer(std::vector<std::vector<NDArray>>{parameters}, optimizer, std::move(store)) {}

namespace {

// All above 0, that of the rest of training: as soon as a layer's gradients are there on every device their
// sum goes before what is left of backward, and is done when backward ends. Among those that could run, what
// the next forward pass needs first.
int priority_of(size_t i, size_t count) { return static_cast<int>(count - std::min(count, i)); }

}  // namespace

class Trainer::Keys {
 public:
  explicit Keys(std::shared_ptr<KVStore> store) : store_(std::move(store)) {
    static std::atomic<uint64_t> made{0};
    prefix_ = mx::detail::concat("Trainer ", made.fetch_add(1), ", parameter ");
  }
  ~Keys() {
    for (size_t i = 0; i < size_; ++i) store_->erase((*this)[i]);
  }
  Keys(const Keys&) = delete;
  Keys& operator=(const Keys&) = delete;

  void add(const NDArray& value) {
    store_->init((*this)[size_], value);
    ++size_;
  }
  std::string operator[](size_t i) const { return prefix_ + std::to_string(i); }

 private:
  std::shared_ptr<KVStore> store_;
  std::string prefix_;
  size_t size_ = 0;
};

Trainer::Trainer(const std::vector<std::vector<NDArray>>& replicas, const OptimizerChoice& optimizer,
                 std::shared_ptr<KVStore> store)
    : replicas_(replicas), store_(std::move(store)) {
  MX_CHECK(!replicas_.empty() && !replicas_[0].empty(), InvalidArgument,
           "[Trainer] expected a replica with parameters, got none");
  MX_CHECK(replicas_.size() == 1 || store_ != nullptr, InvalidArgument, "[Trainer] expected a store for ",
           replicas_.size(), " replicas, got none; KVStore::create(\"device\")");
  const std::vector<NDArray>& first = replicas_[0];
  for (size_t r = 1; r < replicas_.size(); ++r) {
    MX_CHECK(replicas_[r].size() == first.size(), InvalidArgument, "[Trainer] expected ", first.size(),
             " parameters in every replica, got ", replicas_[r].size(), " in replica ", r);
    for (size_t i = 0; i < first.size(); ++i)
      MX_CHECK(replicas_[r][i].shape() == first[i].shape() && replicas_[r][i].dtype() == first[i].dtype(),
               InvalidArgument, "[Trainer] expected parameter ", i, " of replica ", r, " as ",
               first[i].dtype(), ' ', first[i].shape(), ", got ", replicas_[r][i].dtype(), ' ',
               replicas_[r][i].shape());
  }
  optimizer_ = optimizer(first);
  if (store_ == nullptr) return;
  sums_.resize(first.size());
  keys_ = std::make_shared<Keys>(store_);
  for (const NDArray& parameter : first)
    keys_->add(zeros(parameter.shape(), parameter.dtype(), parameter.context()));
  synchronise();
}

void Trainer::step() {
  if (store_ == nullptr) return optimizer_->step();
  NoGrad pause;
  std::vector<NDArray> gradients(sums_.size());
  // The last layers' gradients are there first.
  for (size_t i = sums_.size(); i-- > 0;) {
    std::vector<NDArray> parts;
    for (const std::vector<NDArray>& replica : replicas_)
      if (const NDArray grad = replica[i].grad(); grad.defined()) parts.push_back(grad.detach());
    if (parts.empty()) continue;
    if (!sums_[i].defined()) sums_[i] = empty_like(replicas_[0][i]);
    store_->pushpull((*keys_)[i], parts, sums_[i], {.priority = priority_of(i, sums_.size())});
    gradients[i] = sums_[i];
  }
  optimizer_->step(gradients);
  synchronise();
}

void Trainer::synchronise() {
  NoGrad pause;
  for (size_t i = 0; i < replicas_[0].size(); ++i) {
    const PriorityScope priority(priority_of(i, replicas_[0].size()));
    for (size_t r = 1; r < replicas_.size(); ++r) replicas_[r][i].copy_from(replicas_[0][i]);
  }
}

void Trainer::zero_grad() {
  for (const std::vector<NDArray>& replica : replicas_)
    for (const NDArray& parameter : replica)
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
