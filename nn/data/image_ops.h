// Transforms of single images, which may have different sizes, for SampleOptions::transform.
//
//   data::SampleOptions train{.transform = data::chain({data::random_resized_crop(224, 224), data::flip(),
//                                                       data::colour_jitter({0.4, 0.4, 0.4, 0.1}),
//                                                       data::normalise_image(mean, deviation),
//                                                       data::channels_first()})};
//
// An image is (height, width, channels), u8 or f32. Transforms that move pixels also move the masks and boxes
// of the sample that ImageFields names: masks (height, width) or (height, width, c) take the nearest pixel,
// so no new value appears; boxes are (k, 4) in f32, x0, y0, x1, y1 in pixels from the upper left corner, and
// are cut at the edges. Boxes that lie outside become empty: their rows stay, so that they still belong to
// their labels.
//
// Each function computes one image in one thread, in the same order always: a result has the same bits at any
// number of threads. Constructors throw InvalidArgument for invalid limits, and transforms for fields that do
// not fit. An image whose first dimension is 1, 3 or 4 and whose last one is larger than 4 is taken for
// (channels, height, width): transforms that move pixels throw, since channels_first() must come after them.
// Rounding to u8 is to the nearest, halves up.
#pragma once

#include <cstdint>
#include <vector>

#include "nn/data/sample_source.h"

namespace mx::data {

struct ImageFields {
  size_t image = 0;
  std::vector<size_t> masks{}, boxes{};
};

/// The window of `height` x `width` pixels whose upper left pixel is (top, left). Parts outside of the image
/// are filled.
SampleTransform crop(int64_t top, int64_t left, int64_t height, int64_t width, double fill = 0,
                     const ImageFields& fields = {});
SampleTransform center_crop(int64_t height, int64_t width, double fill = 0, const ImageFields& fields = {});
/// A window at random, within the image enlarged by `padding` filled pixels at each edge.
SampleTransform random_crop(int64_t height, int64_t width, int64_t padding = 0, double fill = 0,
                            const ImageFields& fields = {});
/// Adds filled pixels at the right and lower edges up to these sizes; larger images are not changed.
SampleTransform pad_image(int64_t height, int64_t width, double fill = 0, const ImageFields& fields = {});

/// Resamples to a size: a triangle filter, which is as wide as needed to take in all pixels when the image is
/// reduced, and linear interpolation when it is enlarged (Pillow's BILINEAR).
SampleTransform resize(int64_t height, int64_t width, const ImageFields& fields = {});
/// The same such that the shorter side has that size and the proportions stay.
SampleTransform resize_shorter(int64_t side, const ImageFields& fields = {});

struct ResizedCropOptions {
  double min_area = 0.08, max_area = 1;               ///< share of the image's area
  double min_aspect = 3.0 / 4, max_aspect = 4.0 / 3;  ///< width / height
};
/// A window of random area and proportions, resized: the usual augmentation for ImageNet. Source: Szegedy et
/// al., "Going deeper with convolutions", 2015.
SampleTransform random_resized_crop(int64_t height, int64_t width, const ResizedCropOptions& options = {},
                                    const ImageFields& fields = {});

/// Mirrors left to right, or top to bottom, with that probability.
SampleTransform flip(double probability = 0.5, const ImageFields& fields = {});
SampleTransform flip_vertical(double probability = 0.5, const ImageFields& fields = {});

struct ColourJitter {
  double brightness = 0, contrast = 0, saturation = 0;  ///< factors from 1 - x to 1 + x, not below 0
  double hue = 0;                                       ///< turns from -x to x, x at most 0.5
};
/// Changes brightness, contrast, saturation and hue, in this order, of an image of 3 channels (the last two
/// are left out for 1 channel), as torchvision defines them.
SampleTransform colour_jitter(const ColourJitter& options, size_t field = 0);

/// Sets `holes` squares of that side at random places to `fill`; parts may be beyond the edge. Source:
/// DeVries and Taylor, "Improved regularization of convolutional neural networks with cutout", 2017.
SampleTransform cutout(int64_t side, int64_t holes = 1, double fill = 0, size_t field = 0);

/// u8 from 0 to 255 becomes f32 from 0 to 1; f32 stays.
SampleTransform image_to_float(size_t field = 0);
/// Converts as image_to_float() does, then (x - mean) / deviation for each channel.
SampleTransform normalise_image(std::vector<double> mean, std::vector<double> deviation, size_t field = 0);
/// (height, width, channels) becomes (channels, height, width).
SampleTransform channels_first(size_t field = 0);
/// (channels, height, width) becomes (height, width, channels), as the other transforms need it.
SampleTransform channels_last(size_t field = 0);

namespace detail {
/// Throws InvalidArgument for an image of which the shape shows that the channels come first.
void check_channels_last(const HostArray& image, const char* op);
}  // namespace detail

/// Resamples an image as resize() does.
HostArray resized(const HostArray& image, int64_t height, int64_t width);

}  // namespace mx::data
