#include "nn/pooling.h"

#include <vector>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "nn/detail/call_site.h"

namespace mx::nn {
namespace detail {
namespace {

/// One number for each axis, so that the operator can tell one image from a batch.
PerAxis for_each_axis(const PerAxis& numbers, int axes) {
  std::vector<int64_t> list;
  for (int a = 0; a < axes; ++a) list.push_back(numbers[a]);
  return PerAxis(list);
}

NDArray check_pooled(const char* name, int axes, const NDArray& x) {
  MX_CHECK(x.rank() == axes + 2 || x.rank() == axes + 1, InvalidArgument, "[", name, "] expected x of ",
           axes + 2, " dimensions, or of ", axes + 1, " for one image, got shape ", x.shape());
  return x;
}

template <class Attrs>
std::string pool_text(const Attrs& attrs) {
  std::string text = "kernel=" + to_string(attrs.kernel);
  if (!attrs.stride.all(0)) text += ", stride=" + to_string(attrs.stride);
  if (!attrs.padding.all(0)) text += ", padding=" + to_string(attrs.padding);
  if (attrs.ceil_mode) text += ", ceil_mode=true";
  return text;
}

template <class Options>
void check_pool(const char* name, int axes, const PerAxis& kernel, const Options& options) {
  kernel.check(name, "kernel", axes, 1);
  options.stride.check(name, "stride", axes, 0);
  options.padding.check(name, "padding", axes, 0);
}

}  // namespace

MaxPoolBase::MaxPoolBase(const char* name, int axes, const PerAxis& kernel, const MaxPoolOptions& options,
                         std::source_location where) try
    : name_(name), axes_(axes) {
  check_pool(name, axes, kernel, options);
  options.dilation.check(name, "dilation", axes, 1);
  attrs_ = {for_each_axis(kernel, axes), options.stride, options.padding, options.dilation,
            options.ceil_mode};
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

NDArray MaxPoolBase::forward(const NDArray& x) {
  return max_pool(at_call(check_pooled(name_, axes_, x)), attrs_);
}

std::string MaxPoolBase::extra() const {
  return pool_text(attrs_) + (attrs_.dilation.all(1) ? "" : ", dilation=" + to_string(attrs_.dilation));
}

AvgPoolBase::AvgPoolBase(const char* name, int axes, const PerAxis& kernel, const AvgPoolOptions& options,
                         std::source_location where) try
    : name_(name), axes_(axes) {
  check_pool(name, axes, kernel, options);
  MX_CHECK(options.divisor_override >= 0, InvalidArgument, "[", name,
           "] expected a divisor of 1 or more, or 0, got ", options.divisor_override);
  attrs_ = {for_each_axis(kernel, axes), options.stride,          options.padding, options.ceil_mode,
            options.count_include_pad,   options.divisor_override};
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

NDArray AvgPoolBase::forward(const NDArray& x) {
  return avg_pool(at_call(check_pooled(name_, axes_, x)), attrs_);
}

std::string AvgPoolBase::extra() const {
  return pool_text(attrs_) + (attrs_.count_include_pad ? "" : ", count_include_pad=false");
}

AdaptivePoolBase::AdaptivePoolBase(const char* name, int axes, const PerAxis& size, Function pool,
                                   std::source_location where) try
    : name_(name), axes_(axes), size_(size), pool_(pool) {
  size.check(name, "size", axes, 0);
  size_ = for_each_axis(size, axes);
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

NDArray AdaptivePoolBase::forward(const NDArray& x) {
  return pool_(at_call(check_pooled(name_, axes_, x)), size_);
}

std::string AdaptivePoolBase::extra() const { return "size=" + to_string(size_); }

}  // namespace detail

NDArray GlobalAvgPool::forward(const NDArray& x) { return global_avg_pool(detail::at_call(x)); }
NDArray GlobalMaxPool::forward(const NDArray& x) { return global_max_pool(detail::at_call(x)); }

}  // namespace mx::nn
