#include "nn/unfold.h"

#include "ndarray/detail/place.h"
#include "nn/detail/call_site.h"

namespace mx::nn {
namespace {

void check_unfold(const char* layer, const PerAxis& kernel, const UnfoldOptions& options) {
  kernel.check(layer, "kernel", 2, 1);
  options.dilation.check(layer, "dilation", 2, 1);
  options.padding.check(layer, "padding", 2, 0);
  options.stride.check(layer, "stride", 2, 1);
}

template <class Attrs>
std::string unfold_text(const Attrs& attrs) {
  std::string text = "kernel=" + to_string(attrs.kernel);
  if (!attrs.dilation.all(1)) text += ", dilation=" + to_string(attrs.dilation);
  if (!attrs.padding.all(0)) text += ", padding=" + to_string(attrs.padding);
  if (!attrs.stride.all(1)) text += ", stride=" + to_string(attrs.stride);
  return text;
}

}  // namespace

Unfold::Unfold(const PerAxis& kernel, const UnfoldOptions& options, std::source_location where) try
    : attrs_{kernel, options.dilation, options.padding, options.stride} {
  check_unfold("Unfold", kernel, options);
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

NDArray Unfold::forward(const NDArray& x) { return unfold(detail::at_call(x), attrs_); }

std::string Unfold::extra() const { return unfold_text(attrs_); }

Fold::Fold(const PerAxis& size, const PerAxis& kernel, const UnfoldOptions& options,
           std::source_location where) try
    : attrs_{size, kernel, options.dilation, options.padding, options.stride} {
  size.check("Fold", "size", 2, 0);
  check_unfold("Fold", kernel, options);
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

NDArray Fold::forward(const NDArray& x) { return fold(detail::at_call(x), attrs_); }

std::string Fold::extra() const { return "size=" + to_string(attrs_.size) + ", " + unfold_text(attrs_); }

}  // namespace mx::nn
