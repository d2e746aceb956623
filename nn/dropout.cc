#include "nn/dropout.h"

#include <cmath>
#include <type_traits>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "nn/detail/call_site.h"
#include "operators/elementwise_binary.h"

namespace mx::nn {
namespace {

double probability(const char* layer, double p) {
  MX_CHECK(p >= 0 && p <= 1, InvalidArgument, "[", layer, "] expected a probability from 0 to 1, got ", p);
  return p;
}

/// Returns x's shape with size 1 after the first `kept` dimensions.
Shape shape_of_channels(const NDArray& x, int kept) {
  Shape shape = x.shape();
  for (int i = kept; i < shape.rank(); ++i) shape[i] = 1;
  return shape;
}

}  // namespace

Dropout::Dropout(double p, std::optional<Generator> generator, std::source_location where) try
    : p_(probability("Dropout", p)), generator_(std::move(generator)) {
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

NDArray Dropout::forward(const NDArray& x) {
  return dropout(detail::at_call(x), p_, train_mode() && p_ > 0, generator_ ? &*generator_ : nullptr);
}

std::string Dropout::extra() const { return mx::detail::concat("p=", p_); }

template <class Self, int kLeastRank, int kMostRank>
ChannelDropout<Self, kLeastRank, kMostRank>::ChannelDropout(double p, std::optional<Generator> generator,
                                                            std::source_location where) try
    : p_(probability("Dropout", p)), generator_(std::move(generator)) {
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

template <class Self, int kLeastRank, int kMostRank>
NDArray ChannelDropout<Self, kLeastRank, kMostRank>::forward(const NDArray& x) {
  MX_CHECK(x.rank() >= kLeastRank && x.rank() <= kMostRank, InvalidArgument, "[", this->type_name(),
           "] expected an array of rank ", kMostRank,
           kLeastRank < kMostRank ? ", or one less for a single sample," : "", " got shape ", x.shape());
  if (!this->train_mode() || p_ == 0) return x;
  const int kept = x.rank() == kMostRank ? 2 : 1;
  const NDArray channels = ones(shape_of_channels(x, kept), x.dtype(), x.context());
  return mul(detail::at_call(x),
             dropout(detail::at_call(channels), p_, true, generator_ ? &*generator_ : nullptr));
}

template <class Self, int kLeastRank, int kMostRank>
std::string ChannelDropout<Self, kLeastRank, kMostRank>::extra() const {
  return mx::detail::concat("p=", p_);
}

template class ChannelDropout<Dropout1d, 2, 3>;
template class ChannelDropout<Dropout2d, 4, 4>;
template class ChannelDropout<Dropout3d, 4, 5>;

template <class Self>
AlphaDropoutModule<Self>::AlphaDropoutModule(double p, std::optional<Generator> generator,
                                             std::source_location where) try
    : p_(probability("AlphaDropout", p)), generator_(std::move(generator)) {
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

// Source: Klambauer et al., "Self-Normalizing Neural Networks", 2017.
template <class Self>
NDArray AlphaDropoutModule<Self>::forward(const NDArray& x) {
  constexpr bool kChannels = std::is_same_v<Self, FeatureAlphaDropout>;
  MX_CHECK(!kChannels || x.rank() >= 2, InvalidArgument,
           "[FeatureAlphaDropout] expected an array of rank 2 or more, (batch, channels, ..), got shape ",
           x.shape());
  if (!this->train_mode() || p_ == 0) return x;
  if (p_ == 1) return mul(detail::at_call(x), 0);
  constexpr double kLimit = -1.7580993408473766;  // of SELU at -infinity
  Generator& numbers = generator_or_default(generator_ ? &*generator_ : nullptr, x.context());
  const Shape shape = kChannels ? shape_of_channels(x, 2) : x.shape();
  const NDArray kept = numbers.bernoulli(1 - p_, shape, x.dtype(), detail::call_site());
  const double scale = 1 / std::sqrt((1 - p_) * (1 + p_ * kLimit * kLimit));
  const double shift = -scale * kLimit * p_;
  // scale * (x * kept + limit * (1 - kept)) + shift
  return mul(detail::at_call(x), kept * scale) + (kept * (-scale * kLimit) + (scale * kLimit + shift));
}

template <class Self>
std::string AlphaDropoutModule<Self>::extra() const {
  return mx::detail::concat("p=", p_);
}

template class AlphaDropoutModule<AlphaDropout>;
template class AlphaDropoutModule<FeatureAlphaDropout>;

}  // namespace mx::nn
