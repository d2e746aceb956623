#include "nn/sync_norm.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "executor/autograd/autograd.h"
#include "ndarray/detail/place.h"
#include "ndarray/grad_mode.h"
#include "ndarray/launch.h"
#include "nn/detail/call_site.h"
#include "operators/arrange.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/reduce.h"
#include "operators/shape_ops.h"

namespace mx::nn {
namespace {

/// A sum over all processes. Its gradient is such a sum, so it is a call of the same kind.
struct AllReduce : Function {
  std::shared_ptr<KVStore> store;
  std::string key;
  std::source_location where;
  AllReduce(std::shared_ptr<KVStore> s, std::string k, std::source_location w)
      : store(std::move(s)), key(std::move(k)), where(w) {}

  std::vector<NDArray> forward(std::span<const NDArray> in) override {
    NDArray sum = empty(in[0].shape(), in[0].dtype(), in[0].context());
    // The forward or backward pass waits for it, so it goes before gradients that no pass waits for.
    store->allreduce({KVKey(key)}, {in[0]}, {sum}, {.priority = INT16_MAX, .where = where});
    return {sum};
  }
  std::vector<NDArray> backward(std::span<const NDArray> heads) override {
    return {all_reduce(heads[0], store, key + " gradient", where)};
  }
};

/// The number of elements of each channel, and their mean and biased variance: (), (C,), (C,).
struct Statistics {
  NDArray count, mean, variance;
};

/// The statistics of one process. x is f32 or f64.
Statistics own_statistics(const NDArray& x, int64_t channels) {
  const int64_t count = channels > 0 ? x.numel() / channels : 0;
  const NDArray number = full({}, static_cast<double>(count), x.dtype(), x.context());
  Axes axes{0};
  for (int d = 2; d < x.rank(); ++d) axes.push_back(d);
  if (count == 0) {
    // Zeros, but recorded if x is: otherwise this process would make no call in the backward pass.
    const NDArray none = sum(x, axes);
    return {number, none, none};
  }
  return {number, mean(x, axes), var(x, axes, 0)};
}

/// The statistics of the elements of all processes, by the formula of Chan, Golub and LeVeque ("Algorithms
/// for Computing the Sample Variance", 1983), which subtracts no large numbers of about the same size. Each
/// process puts its own into its row of a table of zeros; the sum of the tables has the rows of all.
Statistics joined_statistics(const Statistics& own, int64_t channels, const std::shared_ptr<KVStore>& store,
                             const std::string& key) {
  const int64_t width = 2 * channels + 1;
  const DType type = own.mean.dtype();
  const NDArray row = concat({own.count.reshape({1}), own.mean, own.variance}, 0).reshape({1, width});
  const NDArray before = zeros({store->rank(), width}, type, row.context()),
                after = zeros({store->size() - 1 - store->rank(), width}, type, row.context());
  const NDArray table = all_reduce(concat({before, row, after}, 0), store, key, detail::call_site());
  const NDArray counts = table.slice(1, Slice{0, 1}), means = table.slice(1, Slice{1, channels + 1}),
                variances = table.slice(1, Slice{channels + 1, width});
  const NDArray total = sum(counts), shares = counts / maximum(total, 1);
  const NDArray average = sum(means * shares, 0);
  return {total.detach(), average, sum((variances + square(means - average)) * shares, 0)};
}

void run_check_count(const KernelArgs& args) {
  MX_CHECK(*args.in[0].as<const double>() != 1, InvalidArgument,
           "[SyncBatchNorm] expected more than one value of each channel in all processes together, for a "
           "variance, got one");
  *args.out[0].as<double>() = 0;
}
const Kernel kCheckCount = {"sync_batch_norm_count", run_check_count, nullptr, 1024};

/// Returns the mean, poisoned if there is only one value of each channel. Only the operation can tell: the
/// counts of the other processes have not arrived when forward() returns.
NDArray checked_mean(const Statistics& all) {
  const NDArray count = all.count.to(f64).to(cpu()), zero = empty({}, f64);
  mx::detail::ArrayImpl* const in[] = {&count.impl()};
  mx::detail::ArrayImpl* const out[] = {&zero.impl()};
  launch({.kernel = &kCheckCount, .inputs = in, .outputs = out, .work = 1, .where = detail::call_site()});
  return all.mean + zero.to(all.mean.dtype()).to(all.mean.context());
}

}  // namespace

NDArray all_reduce(const NDArray& x, const std::shared_ptr<KVStore>& store, const std::string& key,
                   std::source_location where) {
  MX_CHECK(store != nullptr, InvalidArgument, "[all_reduce] expected a store, got none",
           mx::detail::called_at(where));
  MX_CHECK(is_floating(x.dtype()), InvalidArgument, "[all_reduce] expected floating-point elements, got ",
           x.dtype(), mx::detail::called_at(where));
  return apply<AllReduce>(FunctionInputs({x}, where), store, key, where)[0];
}

SyncBatchNorm::SyncBatchNorm(IntArg channels, const SyncBatchNormOptions& options,
                             std::source_location where) try
    : BatchNormModule(channels, {.eps = options.eps,
                                 .momentum = options.momentum,
                                 .affine = options.affine,
                                 .track_running_stats = options.track_running_stats,
                                 .context = options.context,
                                 .dtype = options.dtype}),
      store_(options.store),
      key_(options.key) {
  MX_CHECK(!key_.empty(), InvalidArgument, "[SyncBatchNorm] expected a key, got an empty one");
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

NDArray SyncBatchNorm::forward(const NDArray& x) {
  const bool tracks = running_mean.defined();
  if (store_ == nullptr || store_->size() == 1 || (tracks && !train_mode()))
    return BatchNormModule::forward(x);
  check(x);
  // The statistics are f32 also inside of an Autocast scope: none of these operators lowers a type. The
  // output is computed from the same array in f32, so that both parts of the gradient of x add up before they
  // are rounded.
  const NDArray wide = x.to(accumulation_type(x.dtype()));
  const Statistics own = own_statistics(wide, channels_);
  const Statistics all = joined_statistics(own, channels_, store_, key_);
  if (tracks) {
    const NoGrad pause;
    // Without elements, and with only one, which is an error, nothing changes: the factors are 0.
    const NDArray usable = maximum(minimum(all.count - 1, 1), 0);
    const NDArray any = usable.to(running_mean.dtype());
    const NDArray batches = num_batches_tracked.array() + usable.to(i64);
    num_batches_tracked.copy_from(batches);
    const NDArray share = momentum_ ? any * *momentum_ : any / maximum(batches.to(running_mean.dtype()), 1);
    const NDArray unbiased = all.variance.detach() * (all.count / maximum(all.count - 1, 1));
    running_mean.copy_from(running_mean.array() + share * (all.mean.detach() - running_mean.array()));
    running_var.copy_from(running_var.array() + share * (unbiased - running_var.array()));
  }
  const bool alone =
      x.numel() <= channels_;  // the values of this process are too few without those of others
  const NDArray result = batch_norm_inference(detail::at_call(wide), alone ? checked_mean(all) : all.mean,
                                              all.variance, weight.defined() ? weight.array() : NDArray(),
                                              bias.defined() ? bias.array() : NDArray(), eps_);
  return result.to(x.dtype());
}

std::string SyncBatchNorm::extra() const {
  return BatchNormModule::extra() +
         (store_ == nullptr ? "" : mx::detail::concat(", processes=", store_->size()));
}

}  // namespace mx::nn
