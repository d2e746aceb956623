#include "nn/trainer.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <variant>

#include "comm/world.h"
#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "ndarray/grad_mode.h"
#include "ndarray/part_range.h"
#include "ndarray/priority.h"
#include "nn/detail/choice.h"
#include "nn/detail/gradient_buckets.h"
#include "operators/row_sparse.h"
#include "operators/shape_ops.h"

namespace mx::nn {

OptimizerChoice::OptimizerChoice(const std::string& name, const AttrMap& options, std::source_location where)
    : make_([name, options, where](const Parameters& p) {
        return optim::make_optimizer(name, options, p, where);
      }) {}
OptimizerChoice::OptimizerChoice(Make make, std::source_location where)
    : make_(std::move(make)), is_function_(true) {
  MX_CHECK(make_ != nullptr, InvalidArgument,
           "[Trainer] expected a function that makes an optimiser, got an empty one",
           mx::detail::called_at(where));
}

Trainer::Trainer(const Parameters& parameters, const OptimizerChoice& optimizer,
                 std::shared_ptr<KVStore> store, const TrainerOptions& options, std::source_location where)
    : Trainer(std::vector<Parameters>{parameters}, optimizer, std::move(store), options, where) {}

namespace {

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

/// Throws InvalidArgument for options that need all gradients in one place. The store does not know the loss
/// scale, so it cannot divide gradients by it.
void check_local_update(const optim::Optimizer& optimizer, bool on_store) {
  const char* const option = on_store ? "update_on_store" : "shard_optimizer";
  const std::optional<optim::LossScale>& scale = optimizer.loss_scale();
  MX_CHECK(!scale.has_value() || (!scale->dynamic() && !on_store), InvalidArgument,
           "[Trainer] expected an optimiser without a ", on_store ? "" : "dynamic ", "loss scale with ",
           option, ", got one with it");
  MX_CHECK(
      on_store || optimizer.elementwise(), InvalidArgument,
      "[Trainer] expected an optimiser that can update a parameter in portions with shard_optimizer, got '",
      optimizer.name(), "', which needs the norms of whole parameters");
  for (size_t g = 0; g < optimizer.groups(); ++g) {
    const AttrMap options = optimizer.option_map(g);
    const auto found = options.find("max_norm");
    const double* const limit = found == options.end() ? nullptr : std::get_if<double>(&found->second);
    MX_CHECK(limit == nullptr || *limit == 0, InvalidArgument,
             "[Trainer] expected an optimiser without max_norm with ", option, ", got ", *limit);
  }
}

}  // namespace

Trainer::Trainer(const std::vector<Parameters>& replicas, const OptimizerChoice& optimizer,
                 std::shared_ptr<KVStore> store, const TrainerOptions& options, std::source_location where)
    : Trainer(replicas, optimizer, std::move(store), options, Buffers{}, where) {}

Trainer::Trainer(const std::vector<Parameters>& replicas, const OptimizerChoice& optimizer,
                 std::shared_ptr<KVStore> store, const TrainerOptions& options, Buffers buffers,
                 std::source_location where) try
    : replicas_(replicas), store_(std::move(store)), options_(options), buffers_(std::move(buffers)) {
  check_replicas(replicas_, store_ != nullptr);
  MX_CHECK(options.bucket_bytes >= 0 && options.check_every >= 0, InvalidArgument,
           "[Trainer] expected bucket_bytes and check_every of at least 0, got ", options.bucket_bytes,
           " and ", options.check_every);
  MX_CHECK(!options.update_on_store || store_ != nullptr, InvalidArgument,
           "[Trainer] expected a store with update_on_store, got none");
  MX_CHECK(!options.update_on_store || !options.shard_optimizer, InvalidArgument,
           "[Trainer] expected shard_optimizer or update_on_store, got both");
  options_.shard_optimizer = options.shard_optimizer && several_processes() && !options.update_on_store;
  if (options_.shard_optimizer) store_->slice_of(0);  // throws InvalidState if the store has servers
  if (store_ != nullptr) {
    if (options_.check_every == 0) options_.check_every = store_->options().check_every;
    MX_CHECK(options_.check_every == 0 || store_->type() != "dist_async", InvalidState,
             "[Trainer] expected no check_every with the store \"dist_async\", whose workers have other "
             "values at other times, got ",
             options_.check_every);
    if (const int64_t number = store_->next_trainer(); number > 0)
      prefix_ = mx::detail::concat("trainer ", number, ": ");
  }
  if (several_processes() && !options.update_on_store)
    buckets_ = std::make_shared<detail::GradientBuckets>(
        replicas_, store_,
        detail::GradientBuckets::Options{
            .prefix = prefix_, .bucket_bytes = options_.bucket_bytes, .sharded = options_.shard_optimizer});
  const detail::Choice chosen = choose(optimizer, where);
  for (const detail::Choice::Member& member : chosen.members) updated_.push_back(member.place);
  if (store_ == nullptr) return;
  if (options_.update_on_store) {
    put_on_store(where);
    return;
  }
  if (options_.shard_optimizer) {
    check_local_update(*optimizer_, false);
    split_updates();
  }
  sums_.resize(updated_.size());
  synchronise(where);
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

/// Makes the optimiser. A function of the program may fail, or choose otherwise, in one process only. The
/// others would wait for it, or train something else, so all processes compare what they have.
detail::Choice Trainer::choose(const OptimizerChoice& make, std::source_location where) {
  const Parameters& trained = options_.shard_optimizer ? buckets_->portions() : replicas_[0];
  std::optional<detail::Choice> chosen;
  std::exception_ptr error;
  try {
    std::optional<detail::Choice> whole;
    // Other choices depend on no parameter, so they need no second optimiser.
    if (options_.shard_optimizer && make.is_function())
      whole = detail::choice_of(replicas_[0], make(replicas_[0]).get());
    optimizer_ = make(trained);
    chosen = detail::choice_of(trained, optimizer_.get());
    if (whole) detail::check_same_choice(*whole, *chosen);
    detail::check_not_empty(*optimizer_, replicas_[0]);
  } catch (...) {
    chosen.reset();
    error = std::current_exception();
  }
  try {
    const NoGrad pause;
    if (several_processes())
      detail::compare_choices(*store_, prefix_, chosen ? &*chosen : nullptr, replicas_[0], where);
  } catch (...) {
    if (!error) throw;  // the first error is the one to report
  }
  if (error) std::rethrow_exception(error);
  return *chosen;
}

optim::Optimizer& Trainer::optimizer() {
  MX_CHECK(optimizer_ != nullptr, InvalidState, "[Trainer] expected a trainer, got one that was moved from");
  return *optimizer_;
}

std::string Trainer::key_of(size_t i) const {
  const std::string& name = replicas_[0][i].name;
  return prefix_ + (name.empty() ? std::to_string(i) : name);
}

/// Returns the sum of the replicas' gradients of the optimiser's parameter k, or an empty handle if no
/// replica has a gradient. With one process.
NDArray Trainer::sum_gradients(size_t k, std::source_location where) {
  const size_t i = updated_[k];
  const NDArray& parameter = replicas_[0][i];
  std::vector<NDArray> parts;
  for (const Parameters& replica : replicas_)
    if (const NDArray grad = replica[i].grad(); grad.defined()) parts.push_back(grad);
  if (parts.empty()) return {};
  // The store sums whole arrays. Row-sparse gradients need no store within one process.
  if (NDArray rows = mx::detail::sum_row_sparse(parts, parameter.context()); rows.defined()) return rows;
  for (NDArray& part : parts) part = part.detach();
  NDArray& sum = sums_[k];
  const DType type = detail::gradient_type(parameter);
  if (!sum.defined() || sum.context() != parameter.context() || sum.dtype() != type)
    sum = empty(parameter.shape(), type, parameter.context());
  store_->allreduce({key_of(i)}, {parts}, {sum},
                    {.priority = detail::parameter_priority(i, replicas_[0].size()), .where = where});
  return sum;
}

void Trainer::step(std::source_location where) try {
  if (store_ == nullptr) return optimizer().step(where);
  optimizer();  // throws if this trainer was moved from
  const NoGrad pause;
  // Options of the optimiser may have changed since the last step.
  if (options_.update_on_store || options_.shard_optimizer)
    check_local_update(*optimizer_, options_.update_on_store);
  if (options_.update_on_store) return step_on_store(where);
  if (several_processes()) {
    step_across_processes(where);
  } else {
    step_in_process(where);
  }
  ++steps_;
  if (several_processes()) comm::report_step(steps_);
  std::vector<size_t> places = updated_;
  std::sort(places.begin(), places.end());
  for (const size_t i : places) copy_to_replicas(i, where);
  broadcast_buffers(where);
  check_parameters(where);
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

void Trainer::step_in_process(std::source_location where) {
  if (steps_ == 0) split_updates();
  std::vector<NDArray> gradients(updated_.size());
  // The backward pass computes the gradients of the last layers first, so their sums are pushed first.
  std::vector<size_t> order(updated_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return updated_[a] > updated_[b]; });
  for (const size_t k : order) gradients[k] = sum_gradients(k, where);
  optimizer().step(gradients, where);
}

void Trainer::step_across_processes(std::source_location where) {
  std::vector<bool> updated(replicas_[0].size(), false);
  for (const size_t i : updated_) updated[i] = true;
  if (buckets_->follow(updated)) split_updates();
  const std::vector<NDArray> sums = buckets_->sum_gradients(where);
  std::vector<NDArray> gradients;
  for (const size_t i : updated_) gradients.push_back(sums[i]);
  optimizer().step(gradients, where);
  if (options_.shard_optimizer) buckets_->gather_parameters(where);
}

/// Makes the optimiser update one bucket after the other. With one process, the parameters are put into
/// buckets for the update only.
void Trainer::split_updates() {
  const size_t count = replicas_[0].size();
  std::vector<size_t> place(count, SIZE_MAX);  // of each parameter in the optimiser
  for (size_t k = 0; k < updated_.size(); ++k) place[updated_[k]] = k;
  std::vector<optim::Optimizer::Part> parts;
  const auto add = [&](size_t i) {
    if (place[i] != SIZE_MAX) parts.back().parameters.push_back(place[i]);
  };
  if (buckets_ != nullptr) {
    for (const detail::GradientBucket& bucket : buckets_->buckets()) {
      parts.push_back({.parameters = {}, .priority = bucket.priority});
      for (const size_t i : bucket.members) add(i);
    }
  } else {
    int64_t bytes = options_.bucket_bytes + 1;
    for (size_t i = count; i-- > 0;) {
      bytes += static_cast<int64_t>(replicas_[0][i].array().bytes());
      if (bytes > options_.bucket_bytes) {
        parts.push_back({});
        bytes = static_cast<int64_t>(replicas_[0][i].array().bytes());
      }
      parts.back().priority = detail::parameter_priority(i, count);
      add(i);
    }
  }
  optimizer().set_parts(parts);
}

/// Throws the error of an earlier comparison, and pushes the next one if it is due.
void Trainer::check_parameters(std::source_location where) {
  if (options_.check_every == 0 || !several_processes() || steps_ % options_.check_every != 0) return;
  // All processes look at the same step. If one looked earlier and threw, the others would wait for it in
  // their next sum.
  check_.wait();
  std::vector<KVKey> keys;
  std::vector<NDArray> values;
  for (size_t i = 0; i < replicas_[0].size(); ++i) {
    keys.emplace_back(key_of(i));
    values.push_back(replicas_[0][i].detach());
  }
  store_->check_equal(keys, values, check_, {.where = where});
}

void Trainer::synchronise(std::source_location where) try {
  const NoGrad pause;
  if (options_.update_on_store) return put_on_store(where);
  if (several_processes()) {
    check_ = zeros({});  // a comparison that has failed is over
    std::vector<KVKey> keys;
    std::vector<NDArray> values;
    for (size_t i = 0; i < replicas_[0].size(); ++i) {
      keys.emplace_back(key_of(i));
      values.push_back(replicas_[0][i].detach());
    }
    if (buffers_.first)
      for (const auto& [name, buffer] : buffers_.first()) {
        keys.emplace_back(prefix_ + "buffer " + name);
        values.push_back(buffer.detach());
      }
    store_->broadcast_from_first(keys, values,
                                 {.priority = detail::parameter_priority(0, keys.size()), .where = where});
    // Models that differ are an error here, on all processes, and not at some later wait.
    store_->push_barrier(check_, {.where = where});
    check_.wait();
    for (NDArray& value : values) value.wait();  // with servers, an array has its error alone
  }
  if (optimizer_ == nullptr) return;  // this trainer was moved from
  optimizer_->sync_masters();
  for (size_t i = 0; i < replicas_[0].size(); ++i) copy_to_replicas(i, where);
  copy_buffers_to_replicas(where);
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

/// Copies the buffers of the first replica of process 0 to all others, after a step. Between processes, all
/// buffers of a type travel in one message.
void Trainer::broadcast_buffers(std::source_location where) {
  if (!options_.broadcast_buffers || !buffers_.first) return;
  if (several_processes() && store_->type() != "dist_async") {
    // Processes may use different devices, so keys number the devices in the order of the buffers.
    std::vector<Context> devices;
    std::map<std::string, std::vector<NDArray>> groups;
    for (const auto& [name, buffer] : buffers_.first()) {
      if (buffer.numel() == 0) continue;
      const auto found = std::find(devices.begin(), devices.end(), buffer.context());
      const auto device = found - devices.begin();
      if (found == devices.end()) devices.push_back(buffer.context());
      groups[mx::detail::concat(prefix_, "buffers of ", buffer.dtype(), ", device ", device)].push_back(
          buffer.detach());
    }
    for (const auto& [key, members] : groups) {
      std::vector<NDArray> parts;
      for (const NDArray& member : members) parts.push_back(member.reshape({-1}));
      const NDArray flat = parts.size() == 1 ? parts[0].clone(where) : concat(parts, 0);
      store_->broadcast_from_first(
          {key}, {flat}, {.priority = detail::parameter_priority(0, replicas_[0].size()), .where = where});
      int64_t begin = 0;
      for (NDArray member : members) {
        const int64_t end = begin + member.numel();
        member.copy_from(flat.slice(0, Slice{begin, end}).reshape(member.shape()), where);
        begin = end;
      }
    }
  }
  copy_buffers_to_replicas(where);
}

void Trainer::copy_buffers_to_replicas(std::source_location where) {
  if (!options_.broadcast_buffers || !buffers_.others) return;
  const NamedArrays first = buffers_.first();
  const PriorityScope priority(detail::parameter_priority(0, replicas_[0].size()));
  for (const NamedArrays& other : buffers_.others()) {
    MX_CHECK(other.size() == first.size(), InvalidState,
             "[Trainer] expected replicas with the same buffers, got ", first.size(), " and ", other.size());
    for (size_t i = 0; i < first.size(); ++i)
      NDArray(other[i].second).detach().copy_from(first[i].second, where);
  }
}

void Trainer::copy_to_replicas(size_t i, std::source_location where) {
  const PriorityScope priority(detail::parameter_priority(i, replicas_[0].size()));
  for (size_t r = 1; r < replicas_.size(); ++r) NDArray(replicas_[r][i]).copy_from(replicas_[0][i], where);
}

void Trainer::zero_grad() {
  for (const Parameters& replica : replicas_)
    for (const NamedParameter& parameter : replica)
      if (parameter.requires_grad()) parameter.set_grad({});
}

std::vector<NDArray> split_batch(const NDArray& batch, const std::vector<Context>& devices,
                                 std::source_location where) try {
  const auto parts = static_cast<int64_t>(devices.size());
  MX_CHECK(parts > 0, InvalidArgument, "[split_batch] expected a device, got none");
  MX_CHECK(batch.rank() > 0 && batch.size(0) >= parts, InvalidArgument, "[split_batch] expected at least ",
           parts, " rows, one per device, got shape ", batch.shape());
  const int64_t rows = batch.size(0);
  std::vector<NDArray> result;
  for (int64_t k = 0; k < parts; ++k) {
    const auto [begin, end] = mx::detail::part_range(rows, k, parts);
    result.push_back(batch.slice(0, Slice{begin, end}, where).to(devices[static_cast<size_t>(k)], where));
  }
  return result;
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

}  // namespace mx::nn
