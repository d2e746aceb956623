// Dropout of elements and of channels.
#pragma once

#include <optional>
#include <source_location>
#include <string>

#include "nn/module.h"
#include "operators/random.h"

namespace mx::nn {

/// In training mode, sets each element to 0 with probability p and scales the others by 1 / (1 - p). In
/// predict mode, returns x. The mode is the thread's `TrainMode` or `PredictMode` scope if there is one,
/// otherwise the module's training() flag.
///
/// Random numbers come from `generator`, which must be on x's device, or else from the default generator of
/// that device. Copies and clones draw from the same generator.
class Dropout : public ModuleOf<Dropout> {
 public:
  /// Throws InvalidArgument unless 0 <= p <= 1.
  explicit Dropout(double p = 0.5, std::optional<Generator> generator = {},
                   std::source_location where = std::source_location::current());
  NDArray forward(const NDArray& x) override;
  double p() const { return p_; }
  std::string extra() const override;

 private:
  double p_;
  std::optional<Generator> generator_;
};

/// Dropout of whole channels: each channel of each sample is set to 0, or scaled. The mode and the random
/// numbers are those of Dropout. A call throws InvalidArgument for an input of another rank.
template <class Self, int kLeastRank, int kMostRank>
class ChannelDropout : public ModuleOf<Self> {
 public:
  /// Throws InvalidArgument unless 0 <= p <= 1.
  explicit ChannelDropout(double p = 0.5, std::optional<Generator> generator = {},
                          std::source_location where = std::source_location::current());
  NDArray forward(const NDArray& x) override;
  std::string extra() const override;

 private:
  double p_;
  std::optional<Generator> generator_;
};

/// Takes (N, C, L) and (C, L).
class Dropout1d : public ChannelDropout<Dropout1d, 2, 3> {
 public:
  using ChannelDropout::ChannelDropout;
};
/// Takes (N, C, H, W).
class Dropout2d : public ChannelDropout<Dropout2d, 4, 4> {
 public:
  using ChannelDropout::ChannelDropout;
};
/// Takes (N, C, D, H, W) and (C, D, H, W).
class Dropout3d : public ChannelDropout<Dropout3d, 4, 5> {
 public:
  using ChannelDropout::ChannelDropout;
};

/// Dropout for networks with SELU: in training mode, sets elements to the limit of SELU at -infinity with
/// probability p, then scales and shifts all elements so that mean 0 and variance 1 are preserved. The mode
/// and the random numbers are those of Dropout.
template <class Self>
class AlphaDropoutModule : public ModuleOf<Self> {
 public:
  /// Throws InvalidArgument unless 0 <= p <= 1.
  explicit AlphaDropoutModule(double p = 0.5, std::optional<Generator> generator = {},
                              std::source_location where = std::source_location::current());
  NDArray forward(const NDArray& x) override;
  std::string extra() const override;

 private:
  double p_;
  std::optional<Generator> generator_;
};

class AlphaDropout : public AlphaDropoutModule<AlphaDropout> {
 public:
  using AlphaDropoutModule::AlphaDropoutModule;
};
/// The same for whole channels of (N, C, ..).
class FeatureAlphaDropout : public AlphaDropoutModule<FeatureAlphaDropout> {
 public:
  using AlphaDropoutModule::AlphaDropoutModule;
};

}  // namespace mx::nn
