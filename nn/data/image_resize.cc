// Resampling of one image with a triangle filter, rows first, then columns.
#include <algorithm>
#include <cmath>

#include "engine/base/check.h"
#include "nn/data/image_ops.h"

namespace mx::data {
namespace {

/// The source pixels of one pixel of the result: weights of `first`, `first` + 1, ...
struct FilterTaps {
  int64_t first = 0;
  std::vector<float> weights;
};

// In f64, so that the weights are the same on every platform; rounded once.
std::vector<FilterTaps> triangle_taps(int64_t from, int64_t to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to), support = std::max(scale, 1.0);
  std::vector<FilterTaps> taps(static_cast<size_t>(to));
  for (int64_t i = 0; i < to; ++i) {
    FilterTaps& one = taps[static_cast<size_t>(i)];
    const double center = (static_cast<double>(i) + 0.5) * scale;
    one.first = std::max<int64_t>(0, static_cast<int64_t>(center - support + 0.5));
    const int64_t end = std::min(from, static_cast<int64_t>(center + support + 0.5));
    double sum = 0;
    std::vector<double> exact;
    for (int64_t x = one.first; x < end; ++x) {
      const double distance = std::abs((static_cast<double>(x) - center + 0.5) / support);
      exact.push_back(std::max(0.0, 1 - distance));
      sum += exact.back();
    }
    for (double weight : exact) one.weights.push_back(static_cast<float>(weight / sum));
  }
  return taps;
}

template <class T>
T rounded(float value) {
  if constexpr (std::is_same_v<T, uint8_t>) {
    return static_cast<uint8_t>(std::clamp(value + 0.5f, 0.f, 255.f));
  } else {
    return value;
  }
}

template <class T>
void resample(const HostArray& image, HostArray& made) {
  const int64_t height = image.size(0), width = image.size(1), channels = image.size(2);
  const int64_t to_height = made.size(0), to_width = made.size(1);
  const std::vector<FilterTaps> columns = triangle_taps(width, to_width),
                                rows = triangle_taps(height, to_height);
  const T* const from = image.data<T>();
  std::vector<float> between(static_cast<size_t>(height * to_width * channels));
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < to_width; ++x) {
      const FilterTaps& taps = columns[static_cast<size_t>(x)];
      float* const sums = between.data() + (y * to_width + x) * channels;
      const T* pixel = from + (y * width + taps.first) * channels;
      for (float weight : taps.weights)
        for (int64_t c = 0; c < channels; ++c) sums[c] += weight * static_cast<float>(*pixel++);
    }
  const int64_t stride = to_width * channels;
  std::vector<float> sums(static_cast<size_t>(stride));
  for (int64_t y = 0; y < to_height; ++y) {
    const FilterTaps& taps = rows[static_cast<size_t>(y)];
    std::fill(sums.begin(), sums.end(), 0.f);
    for (size_t k = 0; k < taps.weights.size(); ++k) {
      const float* const row = between.data() + (taps.first + static_cast<int64_t>(k)) * stride;
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += taps.weights[k] * row[i];
    }
    T* const to = made.data<T>() + y * stride;
    for (size_t i = 0; i < sums.size(); ++i) to[i] = rounded<T>(sums[i]);
  }
}

}  // namespace

HostArray resized(const HostArray& image, int64_t height, int64_t width) {
  MX_CHECK(image.rank() == 3 && image.numel() > 0 && (image.dtype() == u8 || image.dtype() == f32),
           InvalidArgument,
           "[resize] expected an image (height, width, channels) with pixels, u8 or f32, got ", image.dtype(),
           " of shape ", image.shape());
  MX_CHECK(height > 0 && width > 0, InvalidArgument, "[resize] expected sides of at least one pixel, got ",
           height, " x ", width);
  if (height == image.size(0) && width == image.size(1)) return image;
  HostArray made({height, width, image.size(2)}, image.dtype());
  if (image.dtype() == u8) {
    resample<uint8_t>(image, made);
  } else {
    resample<float>(image, made);
  }
  return made;
}

}  // namespace mx::data
