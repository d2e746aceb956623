#include "nn/resize_layers.h"

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "nn/detail/call_site.h"

namespace mx::nn {

NDArray Upsample::forward(const NDArray& x) { return interpolate(detail::at_call(x), options_); }

std::string Upsample::extra() const {
  std::string text = "mode=" + options_.mode;
  if (options_.size) text += ", size=" + to_string(*options_.size);
  for (const double factor : options_.scale_factor) text += mx::detail::concat(", scale_factor=", factor);
  return text + (options_.align_corners ? ", align_corners=true" : "");
}

NDArray PixelShuffle::forward(const NDArray& x) { return pixel_shuffle(detail::at_call(x), factor_); }
std::string PixelShuffle::extra() const { return mx::detail::concat("factor=", factor_); }

NDArray PixelUnshuffle::forward(const NDArray& x) { return pixel_unshuffle(detail::at_call(x), factor_); }
std::string PixelUnshuffle::extra() const { return mx::detail::concat("factor=", factor_); }

namespace detail {

PadBase::PadBase(const char* name, const PadWidths& widths, PadMode mode, double value,
                 std::source_location where) try
    : name_(name), widths_(widths), mode_(mode), value_(value) {
  MX_CHECK(widths.left >= 0 && widths.right >= 0 && widths.top >= 0 && widths.bottom >= 0, InvalidArgument,
           "[", name, "] expected widths of 0 or more, got left ", widths.left, ", right ", widths.right,
           ", top ", widths.top, ", bottom ", widths.bottom);
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

NDArray PadBase::forward(const NDArray& x) {
  MX_CHECK(x.rank() >= 2, InvalidArgument, "[", name_, "] expected x of 2 or more dimensions, got shape ",
           x.shape());
  std::vector<int64_t> widths(static_cast<size_t>(2 * (x.rank() - 2)));
  widths.insert(widths.end(), {widths_.top, widths_.bottom, widths_.left, widths_.right});
  return pad(at_call(x), widths, mode_, value_);
}

std::string PadBase::extra() const {
  return mx::detail::concat("left=", widths_.left, ", right=", widths_.right, ", top=", widths_.top,
                            ", bottom=", widths_.bottom);
}

}  // namespace detail
}  // namespace mx::nn
