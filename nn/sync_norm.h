// SyncBatchNorm: batch normalisation with the statistics of the batches of all processes of a job.
//
//   std::shared_ptr<KVStore> kv = KVStore::create("dist_allreduce");
//   Net net{nn::Conv2d(3, 16, 3), nn::SyncBatchNorm(16, {.store = kv}), ...};
//   nn::Trainer trainer(net, optim::SGDOptions{}, kv);        // the same store, or another
//
// In training mode each process sends the number of its elements, and their mean and variance of each
// channel, through the store, and normalises with the mean and the variance of all elements together. The
// running statistics are theirs too. So the results and gradients are those of BatchNorm on the joined batch,
// up to rounding. Batches may have different sizes, or be empty. If all processes together have one value of
// each channel, the result is poisoned with InvalidArgument, and the running statistics stay as they are. It
// behaves as BatchNorm in predict mode with running statistics, with a store of one process, and without a
// store. With track_running_stats = false it sends in predict mode too, so all processes must then make the
// call.
//
// All processes must call the layer, and run the backward pass through it, in the same order with respect to
// all other calls for the store, as the same program does. A layer sends (2 channels + 1) * processes numbers
// of f32 or f64 in the forward pass, and again in the backward pass. The losses of the processes add up: if
// each is a mean over its part, divide by the number of processes, as the Trainer expects.
//
// The names of the layer's calls begin with `key`. Every layer makes the same calls in all processes, so one
// key may serve all layers.
//
// Thread-safety: that of Module (nn/module.h).
#pragma once

#include <memory>
#include <optional>
#include <source_location>
#include <string>

#include "kvstore/kvstore.h"
#include "nn/norm.h"

namespace mx::nn {

/// Returns the sum of x over all processes of the store, in the order of the ranks; recorded: the gradient is
/// the sum of the gradients of all processes. All processes call it with the same key, shape and type. Throws
/// InvalidArgument without a store and for an x that is not floating point.
NDArray all_reduce(const NDArray& x, const std::shared_ptr<KVStore>& store,
                   const std::string& key = "all_reduce",
                   std::source_location where = std::source_location::current());

struct SyncBatchNormOptions {
  double eps = 1e-5;
  /// Share of a batch in the running statistics; none: the average of all batches.
  std::optional<double> momentum = 0.1;
  bool affine = true;
  bool track_running_stats = true;
  std::shared_ptr<KVStore> store{};  ///< whose processes normalise together
  std::string key = "SyncBatchNorm";
  Context context = cpu();
  DType dtype = f32;
};

/// Takes (N, C) and (N, C, ..) with up to three more dimensions. Parameters and buffers are those of
/// BatchNorm.
class SyncBatchNorm : public BatchNormModule<SyncBatchNorm, 2, 5> {
 public:
  /// Throws what BatchNorm throws.
  explicit SyncBatchNorm(IntArg channels, const SyncBatchNormOptions& options = {},
                         std::source_location where = std::source_location::current());
  NDArray forward(const NDArray& x) override;
  std::string extra() const override;

 private:
  std::shared_ptr<KVStore> store_;
  std::string key_;
};

}  // namespace mx::nn
