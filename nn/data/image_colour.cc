// Transforms that change the values of pixels but do not move them.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "engine/base/check.h"
#include "nn/data/image_ops.h"

namespace mx::data {
namespace {

HostArray& coloured(Sample& sample, size_t field, const char* op) {
  MX_CHECK(field < sample.size(), InvalidArgument, "[", op, "] expected a field below ", sample.size(),
           ", got ", field);
  HostArray& image = sample[field];
  MX_CHECK(image.rank() == 3 && (image.dtype() == u8 || image.dtype() == f32), InvalidArgument, "[", op,
           "] expected an image (height, width, channels), u8 or f32, got ", image.dtype(), " of shape ",
           image.shape());
  return image;
}

float clamped(float value, float top) { return std::clamp(value, 0.f, top); }

void blend(float* pixels, int64_t count, float factor, float with, float top) {
  for (int64_t i = 0; i < count; ++i) pixels[i] = clamped(factor * pixels[i] + (1 - factor) * with, top);
}

float luminance(const float* rgb) { return 0.299f * rgb[0] + 0.587f * rgb[1] + 0.114f * rgb[2]; }

void change_contrast(float* pixels, int64_t count, int64_t channels, float factor, float top) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i)
    sum += static_cast<double>(channels == 3 ? luminance(pixels + 3 * i) : pixels[i]);
  blend(pixels, count * channels, factor, static_cast<float>(sum / static_cast<double>(count)), top);
}

void change_saturation(float* pixels, int64_t count, float factor, float top) {
  for (int64_t i = 0; i < count; ++i) blend(pixels + 3 * i, 3, factor, luminance(pixels + 3 * i), top);
}

// Adds `turn` to the hue in the model of hue, saturation and value (A. Smith, "Color gamut transform pairs",
// 1978).
void change_hue(float* pixels, int64_t count, float turn) {
  for (int64_t i = 0; i < count; ++i) {
    float* const p = pixels + 3 * i;
    const float high = std::max({p[0], p[1], p[2]}), low = std::min({p[0], p[1], p[2]}), range = high - low;
    if (range <= 0) continue;
    float sixth = high == p[0]   ? (p[1] - p[2]) / range
                  : high == p[1] ? 2 + (p[2] - p[0]) / range
                                 : 4 + (p[0] - p[1]) / range;
    sixth += 6 * turn;
    sixth -= 6 * std::floor(sixth / 6);
    const auto channel = [&](float shift) {
      float k = shift + sixth;
      if (k >= 6) k -= 6;
      return high - range * std::clamp(std::min(k, 4 - k), 0.f, 1.f);
    };
    const float red = channel(5), green = channel(3), blue = channel(1);
    p[0] = red;
    p[1] = green;
    p[2] = blue;
  }
}

float factor_of(double strength, SampleRandom& random) {
  return static_cast<float>(random.uniform(std::max(0.0, 1 - strength), 1 + strength));
}

HostArray as_u8(const HostArray& pixels) {
  HostArray made(pixels.shape(), u8);
  for (int64_t i = 0; i < pixels.numel(); ++i)
    made.data<uint8_t>()[i] = static_cast<uint8_t>(std::clamp(pixels.data<float>()[i] + 0.5f, 0.f, 255.f));
  return made;
}

HostArray to_unit(const HostArray& image) {
  if (image.dtype() == f32) return image;
  HostArray made(image.shape(), f32);
  const uint8_t* const from = image.data<uint8_t>();
  float* const to = made.data<float>();
  for (int64_t i = 0; i < image.numel(); ++i) to[i] = static_cast<float>(from[i]) / 255.f;
  return made;
}

}  // namespace

SampleTransform colour_jitter(const ColourJitter& o, size_t field) {
  const auto valid = [](double strength) { return std::isfinite(strength) && strength >= 0; };
  MX_CHECK(valid(o.brightness) && valid(o.contrast) && valid(o.saturation) && o.hue >= 0 && o.hue <= 0.5,
           InvalidArgument,
           "[colour_jitter] expected strengths that are finite and not negative and a hue of at ",
           "most 0.5, got ", o.brightness, ", ", o.contrast, ", ", o.saturation, " and ", o.hue);
  return [=](Sample& sample, SampleRandom& random) {
    HostArray& image = coloured(sample, field, "colour_jitter");
    const int64_t channels = image.size(2), count = image.size(0) * image.size(1);
    MX_CHECK(channels == 1 || channels == 3, InvalidArgument,
             "[colour_jitter] expected an image of 1 or 3 channels, got shape ", image.shape());
    const float brightness = factor_of(o.brightness, random), contrast = factor_of(o.contrast, random),
                saturation = factor_of(o.saturation, random);
    const auto turn = static_cast<float>(random.uniform(-o.hue, o.hue));
    if (count == 0) return;
    const bool bytes = image.dtype() == u8;
    const float top = bytes ? 255.f : 1.f;
    HostArray work = bytes ? image.to(f32) : std::move(image);
    float* const pixels = work.data<float>();
    if (o.brightness > 0) blend(pixels, count * channels, brightness, 0, top);
    if (o.contrast > 0) change_contrast(pixels, count, channels, contrast, top);
    if (o.saturation > 0 && channels == 3) change_saturation(pixels, count, saturation, top);
    if (o.hue > 0 && channels == 3) change_hue(pixels, count, turn);
    image = bytes ? as_u8(work) : std::move(work);
  };
}

SampleTransform cutout(int64_t side, int64_t holes, double fill, size_t field) {
  MX_CHECK(side > 0 && side <= 1 << 20 && holes > 0, InvalidArgument,
           "[cutout] expected a side from 1 to 2^20 and at least one hole, got ", side, " and ", holes);
  return [=](Sample& sample, SampleRandom& random) {
    HostArray& image = coloured(sample, field, "cutout");
    detail::check_channels_last(image, "cutout");
    const int64_t height = image.size(0), width = image.size(1), channels = image.size(2);
    if (image.numel() == 0) return;
    for (int64_t hole = 0; hole < holes; ++hole) {
      const int64_t top = random.below(height) - side / 2, left = random.below(width) - side / 2;
      const int64_t right = std::min(width, left + side), first = std::max<int64_t>(0, left);
      for (int64_t y = std::max<int64_t>(0, top); y < std::min(height, top + side); ++y)
        for (int64_t i = (y * width + first) * channels; i < (y * width + right) * channels; ++i) {
          if (image.dtype() == u8) {
            image.data<uint8_t>()[i] = static_cast<uint8_t>(std::clamp(fill + 0.5, 0.0, 255.0));
          } else {
            image.data<float>()[i] = static_cast<float>(fill);
          }
        }
    }
  };
}

SampleTransform image_to_float(size_t field) {
  return [field](Sample& sample, SampleRandom&) {
    HostArray& image = coloured(sample, field, "image_to_float");
    image = to_unit(image);
  };
}

SampleTransform normalise_image(std::vector<double> mean, std::vector<double> deviation, size_t field) {
  MX_CHECK(!mean.empty() && mean.size() == deviation.size(), InvalidArgument,
           "[normalise_image] expected as many deviations as means, got ", deviation.size(), " and ",
           mean.size());
  for (size_t i = 0; i < mean.size(); ++i)
    MX_CHECK(std::isfinite(mean[i]) && std::isfinite(deviation[i]) && deviation[i] > 0, InvalidArgument,
             "[normalise_image] expected finite means and deviations above 0, got ", mean[i], " and ",
             deviation[i], " for channel ", i);
  return [mean = std::move(mean), deviation = std::move(deviation), field](Sample& sample, SampleRandom&) {
    HostArray& image = coloured(sample, field, "normalise_image");
    MX_CHECK(image.size(2) == static_cast<int64_t>(mean.size()), InvalidArgument,
             "[normalise_image] expected an image of ", mean.size(), " channels, got shape ", image.shape());
    image = to_unit(image);
    float* const pixels = image.data<float>();
    const size_t channels = mean.size();
    for (size_t i = 0; i < static_cast<size_t>(image.numel()); ++i)
      pixels[i] =
          (pixels[i] - static_cast<float>(mean[i % channels])) / static_cast<float>(deviation[i % channels]);
  };
}

namespace {

// Swaps both dimensions of (rows, columns).
HostArray transposed(const HostArray& image, int64_t rows, int64_t columns, const Shape& shape) {
  HostArray made(shape, image.dtype());
  visit_size(image.dtype(), [&](auto tag) {
    using Word = typename decltype(tag)::type;
    const auto* const from = reinterpret_cast<const Word*>(image.raw());
    auto* const to = reinterpret_cast<Word*>(made.raw());
    for (int64_t c = 0; c < columns; ++c)
      for (int64_t r = 0; r < rows; ++r) to[c * rows + r] = from[r * columns + c];
  });
  return made;
}

}  // namespace

SampleTransform channels_first(size_t field) {
  return [field](Sample& sample, SampleRandom&) {
    const HostArray& image = coloured(sample, field, "channels_first");
    detail::check_channels_last(image, "channels_first");
    const int64_t height = image.size(0), width = image.size(1), channels = image.size(2);
    sample[field] = transposed(image, height * width, channels, {channels, height, width});
  };
}

SampleTransform channels_last(size_t field) {
  return [field](Sample& sample, SampleRandom&) {
    const HostArray& image = coloured(sample, field, "channels_last");
    const int64_t channels = image.size(0), height = image.size(1), width = image.size(2);
    sample[field] = transposed(image, channels, height * width, {height, width, channels});
  };
}

}  // namespace mx::data
