#include "nn/norm.h"

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "ndarray/grad_mode.h"
#include "nn/detail/call_site.h"
#include "nn/sync_norm.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/reduce.h"

namespace mx::nn {
namespace {

void check_options(const std::string& layer, double eps, DType dtype) {
  MX_CHECK(eps >= 0, InvalidArgument, "[", layer, "] expected an eps of 0 or more, got ", eps);
  MX_CHECK(is_floating(dtype), InvalidArgument, "[", layer, "] expected a floating-point type, got ", dtype);
}

void check_channels(const std::string& layer, int64_t channels, double momentum) {
  MX_CHECK(channels >= 0, InvalidArgument, "[", layer, "] expected a number of channels of 0 or more, got ",
           channels);
  MX_CHECK(momentum >= 0 && momentum <= 1, InvalidArgument, "[", layer,
           "] expected a momentum from 0 to 1, got ", momentum);
}

void check_input(const std::string& layer, const NDArray& x, bool rank_fits, const char* ranks,
                 int64_t channels, int axis) {
  MX_CHECK(rank_fits && x.size(axis) == channels, InvalidArgument, "[", layer, "] expected an array of rank ",
           ranks, " with ", channels, " channels, got shape ", x.shape());
}

NDArray array_of(const Parameter& parameter) { return parameter.defined() ? parameter.array() : NDArray(); }

template <class Options>
NDArray ones_of(const Shape& shape, const Options& options) {
  return ones(shape, options.dtype, options.context);
}
template <class Options>
NDArray zeros_of(const Shape& shape, const Options& options) {
  return zeros(shape, options.dtype, options.context);
}

std::string text_of(const std::optional<double>& number) {
  return number ? mx::detail::concat(*number) : "none";
}

}  // namespace

template <class Self, int kLeastRank, int kMostRank>
BatchNormModule<Self, kLeastRank, kMostRank>::BatchNormModule(IntArg channels,
                                                              const BatchNormOptions& options,
                                                              std::source_location where) try
    : channels_(channels), eps_(options.eps), momentum_(options.momentum) {
  check_options("BatchNorm", options.eps, options.dtype);
  check_channels("BatchNorm", channels, options.momentum.value_or(0));
  if (options.affine) {
    weight = this->add_parameter("weight", ones_of({channels}, options));
    bias = this->add_parameter("bias", zeros_of({channels}, options));
  }
  if (!options.track_running_stats) return;
  running_mean = this->add_buffer("running_mean", zeros_of({channels}, options));
  running_var = this->add_buffer("running_var", ones_of({channels}, options));
  num_batches_tracked = this->add_buffer("num_batches_tracked", zeros({}, i64, options.context));
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

template <class Self, int kLeastRank, int kMostRank>
void BatchNormModule<Self, kLeastRank, kMostRank>::check(const NDArray& x) const {
  constexpr const char* kRanks = kLeastRank == kMostRank ? (kMostRank == 4 ? "4" : "5")
                                 : kMostRank == 3        ? "2 or 3"
                                                         : "2 to 5";
  check_input(this->type_name(), x, x.rank() >= kLeastRank && x.rank() <= kMostRank, kRanks, channels_, 1);
}

template <class Self, int kLeastRank, int kMostRank>
NDArray BatchNormModule<Self, kLeastRank, kMostRank>::forward(const NDArray& x) {
  check(x);
  const Arg input = detail::at_call(x);
  const bool tracks = running_mean.defined(), trains = this->train_mode();
  if (tracks && !trains)
    return batch_norm_inference(input, running_mean, running_var, array_of(weight), array_of(bias), eps_);
  const int64_t elements = channels_ > 0 ? x.numel() / channels_ : 0;
  MX_CHECK(elements != 1, InvalidArgument, "[", this->type_name(),
           "] expected more than one value of each channel, for a variance, got shape ", x.shape());
  const NormResult result = batch_norm(input, array_of(weight), array_of(bias), eps_);
  if (tracks && elements > 0) {
    const NoGrad pause;
    update_running_statistics(running_mean, running_var, num_batches_tracked,
                              detail::at_call(result.mean.detach()), result.rstd.detach(),
                              {.momentum = momentum_, .eps = eps_, .elements = elements});
  }
  return result.y;
}

template <class Self, int kLeastRank, int kMostRank>
std::string BatchNormModule<Self, kLeastRank, kMostRank>::extra() const {
  return mx::detail::concat(channels_, ", eps=", eps_, ", momentum=", text_of(momentum_),
                            weight.defined() ? "" : ", affine=false",
                            running_mean.defined() ? "" : ", track_running_stats=false");
}

template class BatchNormModule<BatchNorm1d, 2, 3>;
template class BatchNormModule<BatchNorm2d, 4, 4>;
template class BatchNormModule<BatchNorm3d, 5, 5>;
template class BatchNormModule<SyncBatchNorm, 2, 5>;

template <class Self, int kRank>
InstanceNormModule<Self, kRank>::InstanceNormModule(IntArg channels, const InstanceNormOptions& options,
                                                    std::source_location where) try
    : channels_(channels), eps_(options.eps), momentum_(options.momentum) {
  check_options("InstanceNorm", options.eps, options.dtype);
  check_channels("InstanceNorm", channels, options.momentum);
  if (options.affine) {
    weight = this->add_parameter("weight", ones_of({channels}, options));
    bias = this->add_parameter("bias", zeros_of({channels}, options));
  }
  if (!options.track_running_stats) return;
  running_mean = this->add_buffer("running_mean", zeros_of({channels}, options));
  running_var = this->add_buffer("running_var", ones_of({channels}, options));
  num_batches_tracked = this->add_buffer("num_batches_tracked", zeros({}, i64, options.context));
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

template <class Self, int kRank>
NDArray InstanceNormModule<Self, kRank>::forward(const NDArray& x) {
  const bool batched = x.rank() == kRank;
  constexpr const char* kRanks = kRank == 3 ? "2 or 3" : kRank == 4 ? "3 or 4" : "4 or 5";
  check_input(this->type_name(), x, batched || x.rank() == kRank - 1, kRanks, channels_, batched ? 1 : 0);
  const NDArray samples = batched ? x : x.expand_dims(0);
  const Arg input = detail::at_call(samples);
  const auto finish = [batched](const NDArray& y) { return batched ? y : y.squeeze(0); };
  const bool tracks = running_mean.defined(), trains = this->train_mode();
  if (tracks && !trains)
    return finish(
        batch_norm_inference(input, running_mean, running_var, array_of(weight), array_of(bias), eps_));
  const int64_t count = input.array.size(0) * channels_, elements = count > 0 ? x.numel() / count : 0;
  MX_CHECK(elements != 1, InvalidArgument, "[", this->type_name(),
           "] expected more than one value of each channel, for a variance, got shape ", x.shape());
  if (channels_ == 0) return x;
  const NormResult result =
      group_norm_with_statistics(input, channels_, array_of(weight), array_of(bias), eps_);
  if (tracks && elements > 0) {
    const NoGrad pause;
    const NDArray variance = mean(reciprocal(square(result.rstd.detach())) - eps_, 0);
    update_running_statistics(running_mean, running_var, zeros({}, i64, x.context()),
                              detail::at_call(mean(result.mean.detach(), 0)), rsqrt(variance + eps_),
                              {.momentum = momentum_, .eps = eps_, .elements = elements});
  }
  return finish(result.y);
}

template <class Self, int kRank>
std::string InstanceNormModule<Self, kRank>::extra() const {
  return mx::detail::concat(channels_, ", eps=", eps_, ", momentum=", momentum_,
                            weight.defined() ? ", affine=true" : "",
                            running_mean.defined() ? ", track_running_stats=true" : "");
}

template class InstanceNormModule<InstanceNorm1d, 3>;
template class InstanceNormModule<InstanceNorm2d, 4>;
template class InstanceNormModule<InstanceNorm3d, 5>;

LayerNorm::LayerNorm(const Shape& shape, const LayerNormOptions& options, std::source_location where) try
    : shape_(shape), eps_(options.eps) {
  check_options("LayerNorm", options.eps, options.dtype);
  if (!options.elementwise_affine) return;
  weight = add_parameter("weight", ones_of(shape, options));
  if (options.bias) bias = add_parameter("bias", zeros_of(shape, options));
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

NDArray LayerNorm::forward(const NDArray& x) {
  return layer_norm(detail::at_call(x), shape_, array_of(weight), array_of(bias), eps_);
}

std::string LayerNorm::extra() const {
  return mx::detail::concat(shape_, ", eps=", eps_, weight.defined() ? "" : ", elementwise_affine=false",
                            weight.defined() && !bias.defined() ? ", bias=false" : "");
}

RMSNorm::RMSNorm(const Shape& shape, const RMSNormOptions& options, std::source_location where) try
    : shape_(shape), eps_(options.eps) {
  check_options("RMSNorm", options.eps.value_or(0), options.dtype);
  if (options.elementwise_affine) weight = add_parameter("weight", ones_of(shape, options));
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

NDArray RMSNorm::forward(const NDArray& x) {
  return rms_norm(detail::at_call(x), shape_, array_of(weight), eps_);
}

std::string RMSNorm::extra() const {
  return mx::detail::concat(shape_, ", eps=", text_of(eps_),
                            weight.defined() ? "" : ", elementwise_affine=false");
}

GroupNorm::GroupNorm(IntArg groups, IntArg channels, const GroupNormOptions& options,
                     std::source_location where) try
    : groups_(groups), channels_(channels), eps_(options.eps) {
  check_options("GroupNorm", options.eps, options.dtype);
  MX_CHECK(groups_ > 0 && channels_ >= 0 && channels_ % groups_ == 0, InvalidArgument,
           "[GroupNorm] expected a number of groups that divides the number of channels, got ", groups_,
           " groups and ", channels_, " channels");
  if (!options.affine) return;
  weight = add_parameter("weight", ones_of({channels}, options));
  bias = add_parameter("bias", zeros_of({channels}, options));
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

NDArray GroupNorm::forward(const NDArray& x) {
  check_input("GroupNorm", x, x.rank() >= 2, "2 or more", channels_, 1);
  return group_norm(detail::at_call(x), groups_, array_of(weight), array_of(bias), eps_);
}

std::string GroupNorm::extra() const {
  return mx::detail::concat("groups=", groups_, ", channels=", channels_, ", eps=", eps_,
                            weight.defined() ? "" : ", affine=false");
}

LocalResponseNorm::LocalResponseNorm(IntArg size, const LocalResponseOptions& options,
                                     std::source_location where) try
    : size_(size), options_(options) {
  MX_CHECK(size_ >= 1, InvalidArgument, "[LocalResponseNorm] expected a size of 1 or more, got ", size_);
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

NDArray LocalResponseNorm::forward(const NDArray& x) {
  return local_response_norm(detail::at_call(x), size_, options_);
}

std::string LocalResponseNorm::extra() const {
  return mx::detail::concat("size=", size_, ", alpha=", options_.alpha, ", beta=", options_.beta,
                            ", k=", options_.k);
}

}  // namespace mx::nn
