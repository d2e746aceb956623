#include "nn/detail/gradient_buckets.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "ndarray/grad_mode.h"
#include "ndarray/priority.h"

namespace mx::nn::detail {

DType gradient_type(const NDArray& parameter) { return accumulation_type(parameter.dtype()); }

int parameter_priority(size_t i, size_t count) { return static_cast<int>(count - std::min(count, i)); }

namespace {

NDArray part_of(const NDArray& flat, int64_t begin, const NDArray& like) {
  return flat.slice(0, Slice{begin, begin + like.numel()}).reshape(like.shape());
}

/// The elements of [begin, begin + count) that lie in `own`, counted from `begin`.
ElementRange overlap(const ElementRange& own, int64_t begin, int64_t count) {
  const int64_t from = std::clamp(own.begin - begin, int64_t{0}, count);
  return {from, std::clamp(own.end - begin, from, count)};
}

}  // namespace

GradientBuckets::GradientBuckets(const std::vector<Parameters>& replicas, std::shared_ptr<KVStore> store,
                                 Options options)
    : replicas_(replicas), store_(std::move(store)), options_(std::move(options)) {
  if (!options_.sharded) return;
  MX_CHECK(replicas_.size() == 1, InvalidArgument,
           "[Trainer] expected one replica in each process with shard_optimizer, got ", replicas_.size());
  std::vector<bool> included;
  for (size_t i = 0; i < replicas_[0].size(); ++i) {
    const NamedParameter& parameter = replicas_[0][i];
    included.push_back(parameter.requires_grad());
    // A portion of another one would be a part of a copy.
    MX_CHECK(!included[i] || parameter->contiguous(), InvalidArgument, "[Trainer] expected parameter '",
             parameter.name.empty() ? std::to_string(i) : parameter.name,
             "' to be contiguous with shard_optimizer, got one that is not");
  }
  make(included);
  make_portions();
}

bool GradientBuckets::follow(const std::vector<bool>& updated) {
  const Parameters& first = replicas_[0];
  bool moved = arrays_.size() != first.size();
  for (size_t i = 0; i < first.size() && !moved; ++i) moved = arrays_[i] != &first[i].array().impl();
  if (options_.sharded) {
    MX_CHECK(!moved, InvalidState,
             "[Trainer] expected the parameters that the trainer was made with, because their optimiser is "
             "sharded, got others; make a new trainer after moving or converting a model");
    for (size_t i = 0; i < first.size(); ++i)
      MX_CHECK(first[i].requires_grad() == in_bucket_[i], InvalidState, "[Trainer] expected '", first[i].name,
               in_bucket_[i] ? "' to require a gradient" : "' to require no gradient",
               " as when the trainer was made, because the optimiser is sharded; make a new trainer after "
               "freezing or unfreezing parameters");
    return false;
  }
  std::vector<bool> included(first.size());
  for (size_t i = 0; i < first.size(); ++i)
    included[i] = updated[i] && (first[i].requires_grad() || first[i].grad().defined());
  if (!moved && included == in_bucket_) return false;
  make(included);
  return true;
}

void GradientBuckets::make(const std::vector<bool>& included) {
  const Parameters& first = replicas_[0];
  buckets_.clear();
  arrays_.clear();
  in_bucket_ = included;
  for (const NamedParameter& parameter : first) arrays_.push_back(&parameter.array().impl());
  GradientBucket open;
  int64_t bytes = 0;
  for (size_t i = first.size(); i-- > 0;) {
    if (!included[i]) continue;
    const NDArray& parameter = first[i];
    const int64_t own = parameter.numel() * static_cast<int64_t>(size_of(gradient_type(parameter)));
    if (!open.members.empty()) {
      const NDArray& other = first[open.members[0]];
      if (other.dtype() != parameter.dtype() || other.context() != parameter.context() ||
          bytes + own > options_.bucket_bytes) {
        close(std::exchange(open, {}));
        bytes = 0;
      }
    }
    open.members.push_back(i);
    bytes += own;
  }
  if (!open.members.empty()) close(std::move(open));
}

void GradientBuckets::close(GradientBucket bucket) {
  const Parameters& first = replicas_[0];
  const auto name = [&](size_t i) { return first[i].name.empty() ? std::to_string(i) : first[i].name; };
  const size_t front = bucket.members.back(), back = bucket.members.front();
  bucket.key = options_.prefix + "gradient of " + name(front);
  if (front != back)
    bucket.key += mx::detail::concat(" to ", name(back), " (", bucket.members.size(), " parameters)");
  bucket.priority = parameter_priority(front, first.size());
  int64_t elements = 0;
  for (const size_t i : bucket.members) {
    bucket.begins.push_back(elements);
    elements += first[i].numel();
  }
  const DType type = gradient_type(first[front]);
  for (size_t r = 0; r < replicas_.size(); ++r) {
    const Context context = replicas_[r][front].context();
    bucket.flats.push_back(r == 0 && context.is_cpu() ? store_->buffer(elements, type)
                                                      : empty({elements}, type, context));
    auto& views = bucket.views.emplace_back();
    for (size_t m = 0; m < bucket.members.size(); ++m)
      views.push_back(part_of(bucket.flats[r], bucket.begins[m], first[bucket.members[m]]));
  }
  if (options_.sharded) {
    const Slice own = store_->slice_of(elements);
    bucket.own = {*own.start, *own.stop};
  }
  buckets_.push_back(std::move(bucket));
}

std::vector<NDArray> GradientBuckets::sum_gradients(std::source_location where) {
  std::vector<NDArray> sums(replicas_[0].size());
  for (GradientBucket& bucket : buckets_) {
    const PriorityScope priority(bucket.priority);
    for (size_t r = 0; r < replicas_.size(); ++r)
      for (size_t m = 0; m < bucket.members.size(); ++m) {
        const NDArray gradient = replicas_[r][bucket.members[m]].grad();
        if (gradient.defined()) {
          bucket.views[r][m].copy_from(gradient.detach(), where);
        } else {
          bucket.views[r][m].fill_(0);
        }
      }
    const KVOptions options{.priority = bucket.priority, .where = where};
    if (options_.sharded) {
      store_->sum_slices(bucket.key, bucket.flats[0], options);
    } else {
      store_->allreduce({bucket.key}, {bucket.flats}, {bucket.flats[0]}, options);
    }
    for (size_t m = 0; m < bucket.members.size(); ++m) {
      const size_t i = bucket.members[m];
      if (!options_.sharded) {
        sums[i] = bucket.views[0][m];
        continue;
      }
      const ElementRange& range = ranges_[i];
      sums[i] = bucket.flats[0].slice(0, range.slice(bucket.begins[m]));
    }
  }
  return sums;
}

// Sharded.

void GradientBuckets::make_portions() {
  const NoGrad pause;
  const Parameters& first = replicas_[0];
  ranges_.assign(first.size(), {});
  std::vector<NDArray> portions(first.size());
  for (const GradientBucket& bucket : buckets_)
    for (size_t m = 0; m < bucket.members.size(); ++m) {
      const size_t i = bucket.members[m];
      ranges_[i] = overlap(bucket.own, bucket.begins[m], first[i].numel());
      // Functions that choose parameters by requires_grad() choose portions of the same ones.
      portions[i] = portion_of(i, first[i]).detach().requires_grad_();
    }
  for (size_t i = 0; i < first.size(); ++i)
    portions_.emplace_back(first[i].name, in_bucket_[i] ? portions[i] : first[i].detach());
}

NDArray GradientBuckets::portion_of(size_t i, const NDArray& whole) const {
  return whole.detach().reshape({-1}).slice(0, ranges_[i].slice());
}

void GradientBuckets::gather_parameters(std::source_location where) {
  const Parameters& first = replicas_[0];
  for (size_t b = buckets_.size(); b-- > 0;) {
    GradientBucket& bucket = buckets_[b];
    const PriorityScope priority(bucket.priority);
    const DType type = first[bucket.members[0]].dtype();
    // The buffer of the gradients is free again when the update has read them.
    const NDArray flat = type == bucket.flats[0].dtype()
                             ? bucket.flats[0]
                             : empty(bucket.flats[0].shape(), type, bucket.flats[0].context());
    for (size_t m = 0; m < bucket.members.size(); ++m) {
      const ElementRange& range = ranges_[bucket.members[m]];
      if (range.empty()) continue;
      flat.slice(0, range.slice(bucket.begins[m])).copy_from(portions_[bucket.members[m]], where);
    }
    store_->gather_slices(bucket.key + ", values", flat, {.priority = bucket.priority, .where = where});
    for (size_t m = 0; m < bucket.members.size(); ++m) {
      const NamedParameter& parameter = first[bucket.members[m]];
      parameter.copy_from(part_of(flat, bucket.begins[m], parameter), where);
    }
  }
}

std::vector<NDArray> GradientBuckets::gather(const std::string& what, const std::vector<NDArray>& portions,
                                             std::source_location where) {
  const Parameters& first = replicas_[0];
  std::vector<NDArray> wholes(first.size());
  for (const GradientBucket& bucket : buckets_) {
    DType type = f32;
    bool any = false;
    for (const size_t i : bucket.members)
      if (portions[i].defined()) {
        any = true;
        type = portions[i].dtype();
      }
    if (!any) continue;
    const NDArray flat = empty(bucket.flats[0].shape(), type, bucket.flats[0].context());
    for (size_t m = 0; m < bucket.members.size(); ++m) {
      const size_t i = bucket.members[m];
      const ElementRange& range = ranges_[i];
      if (range.empty()) continue;
      NDArray part = flat.slice(0, range.slice(bucket.begins[m]));
      if (portions[i].defined()) {
        part.copy_from(portions[i], where);
      } else {
        part.fill_(0);
      }
    }
    store_->gather_slices(bucket.key + ", " + what, flat, {.where = where});
    for (size_t m = 0; m < bucket.members.size(); ++m) {
      const size_t i = bucket.members[m];
      if (portions[i].defined()) wholes[i] = part_of(flat, bucket.begins[m], first[i]);
    }
  }
  return wholes;
}

}  // namespace mx::nn::detail
