// Normalisation layers, with the names, options and defaults of torch.nn.
//
// A layer computes y = (x - mean) / sqrt(variance + eps) * weight + bias, with the biased variance;
// operators/norm.h has the functions. Parameters: weight, initialised to 1, and bias, initialised to 0,
// unless an option leaves them out. A call throws InvalidArgument for an input of another rank or number of
// channels.
//
// Thread-safety: that of Module (nn/module.h).
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <source_location>
#include <string>

#include "nn/module.h"
#include "operators/norm.h"

namespace mx::nn {

struct BatchNormOptions {
  double eps = 1e-5;
  /// Share of a batch in the running statistics; none: 1 / num_batches_tracked, the average of all batches.
  std::optional<double> momentum = 0.1;
  bool affine = true;  ///< false: without weight and bias
  /// false: without running statistics, so that the statistics of the batch are used in predict mode too.
  bool track_running_stats = true;
  Context context = cpu();
  DType dtype = f32;
};

/// Normalises each channel over the batch: in training mode with the statistics of the batch, in predict mode
/// with the running statistics. The mode is the thread's `TrainMode` or `PredictMode` scope if there is one,
/// otherwise the module's training() flag.
///
/// The buffers running_mean (0 at first), running_var (1 at first; unbiased) and num_batches_tracked (i64)
/// are updated by a call in training mode, by an operation that is not recorded. A batch without elements
/// changes none of them. A call in training mode throws InvalidArgument for a batch with a single value of
/// each channel.
template <class Self, int kLeastRank, int kMostRank>
class BatchNormModule : public ModuleOf<Self> {
 public:
  /// Throws InvalidArgument for a negative number of channels or eps, a momentum outside of [0, 1], and a
  /// type that is not floating point.
  explicit BatchNormModule(IntArg channels, const BatchNormOptions& options = {},
                           std::source_location where = std::source_location::current());
  NDArray forward(const NDArray& x) override;
  std::string extra() const override;

  Parameter weight, bias;                                    ///< not defined() if affine is false
  Parameter running_mean, running_var, num_batches_tracked;  ///< only if track_running_stats is set

 protected:
  /// Throws InvalidArgument for an input of another rank or number of channels.
  void check(const NDArray& x) const;

  int64_t channels_;
  double eps_;
  std::optional<double> momentum_;
};

/// Takes (N, C) and (N, C, L).
class BatchNorm1d : public BatchNormModule<BatchNorm1d, 2, 3> {
 public:
  using BatchNormModule::BatchNormModule;
};
/// Takes (N, C, H, W).
class BatchNorm2d : public BatchNormModule<BatchNorm2d, 4, 4> {
 public:
  using BatchNormModule::BatchNormModule;
};
/// Takes (N, C, D, H, W).
class BatchNorm3d : public BatchNormModule<BatchNorm3d, 5, 5> {
 public:
  using BatchNormModule::BatchNormModule;
};

struct InstanceNormOptions {
  double eps = 1e-5;
  double momentum = 0.1;  ///< share of a batch in the running statistics
  bool affine = false;
  bool track_running_stats = false;
  Context context = cpu();
  DType dtype = f32;
};

/// Normalises each channel of each sample. With track_running_stats, the averages over the batch of means and
/// unbiased variances update the running statistics in training mode, and predict mode uses these. As in
/// PyTorch, num_batches_tracked stays 0. A call that uses the statistics of the input throws InvalidArgument
/// for channels of a single value. The input may lack the dimension of the batch.
template <class Self, int kRank>
class InstanceNormModule : public ModuleOf<Self> {
 public:
  explicit InstanceNormModule(IntArg channels, const InstanceNormOptions& options = {},
                              std::source_location where = std::source_location::current());
  NDArray forward(const NDArray& x) override;
  std::string extra() const override;

  Parameter weight, bias;
  Parameter running_mean, running_var, num_batches_tracked;

 private:
  int64_t channels_;
  double eps_, momentum_;
};

/// Takes (N, C, L).
class InstanceNorm1d : public InstanceNormModule<InstanceNorm1d, 3> {
 public:
  using InstanceNormModule::InstanceNormModule;
};
/// Takes (N, C, H, W).
class InstanceNorm2d : public InstanceNormModule<InstanceNorm2d, 4> {
 public:
  using InstanceNormModule::InstanceNormModule;
};
/// Takes (N, C, D, H, W).
class InstanceNorm3d : public InstanceNormModule<InstanceNorm3d, 5> {
 public:
  using InstanceNormModule::InstanceNormModule;
};

struct LayerNormOptions {
  double eps = 1e-5;
  bool elementwise_affine = true;  ///< false: without weight and bias
  bool bias = true;                ///< false: without bias
  Context context = cpu();
  DType dtype = f32;
};

/// Normalises over the last dimensions, of the sizes `shape`. Parameters: weight and bias of that shape.
class LayerNorm : public ModuleOf<LayerNorm> {
 public:
  explicit LayerNorm(const Shape& shape, const LayerNormOptions& options = {},
                     std::source_location where = std::source_location::current());
  /// One dimension of that size.
  template <std::integral I>
  explicit LayerNorm(I size, const LayerNormOptions& options = {},
                     std::source_location where = std::source_location::current())
      : LayerNorm(Shape{IntArg(size)}, options, where) {}
  NDArray forward(const NDArray& x) override;
  std::string extra() const override;

  Parameter weight, bias;

 private:
  Shape shape_;
  double eps_;
};

struct RMSNormOptions {
  /// Added to the mean of the squares; none: the distance from 1 to the next number of the type of the
  /// computation, which is f32 for f16 and bf16.
  std::optional<double> eps{};
  bool elementwise_affine = true;  ///< false: without weight
  Context context = cpu();
  DType dtype = f32;
};

/// Divides by the root of the mean square over the last dimensions, of the sizes `shape`.
class RMSNorm : public ModuleOf<RMSNorm> {
 public:
  explicit RMSNorm(const Shape& shape, const RMSNormOptions& options = {},
                   std::source_location where = std::source_location::current());
  template <std::integral I>
  explicit RMSNorm(I size, const RMSNormOptions& options = {},
                   std::source_location where = std::source_location::current())
      : RMSNorm(Shape{IntArg(size)}, options, where) {}
  NDArray forward(const NDArray& x) override;
  std::string extra() const override;

  Parameter weight;

 private:
  Shape shape_;
  std::optional<double> eps_;
};

struct GroupNormOptions {
  double eps = 1e-5;
  bool affine = true;
  Context context = cpu();
  DType dtype = f32;
};

/// Normalises each group of channels / groups channels of each sample of x (N, C, ..).
class GroupNorm : public ModuleOf<GroupNorm> {
 public:
  /// Throws InvalidArgument if `groups` does not divide `channels`.
  GroupNorm(IntArg groups, IntArg channels, const GroupNormOptions& options = {},
            std::source_location where = std::source_location::current());
  NDArray forward(const NDArray& x) override;
  std::string extra() const override;

  Parameter weight, bias;

 private:
  int64_t groups_, channels_;
  double eps_;
};

/// local_response_norm() over `size` channels.
class LocalResponseNorm : public ModuleOf<LocalResponseNorm> {
 public:
  explicit LocalResponseNorm(IntArg size, const LocalResponseOptions& options = {},
                             std::source_location where = std::source_location::current());
  NDArray forward(const NDArray& x) override;
  std::string extra() const override;

 private:
  int64_t size_;
  LocalResponseOptions options_;
};

}  // namespace mx::nn
