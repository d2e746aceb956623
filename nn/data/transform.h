// Transforms: changes that a loader applies to each batch before the program receives it.
//
//   data::Transform augment = data::compose({data::random_rotate(15), data::random_scale(0.9, 1.1),
//                                            data::random_shift(2), data::add_noise(0.05),
//                                            data::normalise({0.1307}, {0.3081})});
//   data::Loader loader(data, {.batch_size = 64, .shuffle = true, .transform = augment});
//
// A transform is a value without mutable state. Applying one to a batch pushes operations and returns at
// once. A random transform of a sample depends only on the loader's seed, the epoch, the sample's number in
// the data set and the place of the step in the transform. It does not depend on the sample's batch, on
// shards, on the order or on threads.
//
// Consecutive random shifts, rotations, scales and flips are combined into one resampling of the image, so
// the image loses sharpness only once. Images are (n, .., height, width), and f32 afterwards.
//
// Constructors throw InvalidArgument for invalid limits. Applying a transform throws it for a batch whose
// shape or type does not fit. Any thread may use a transform.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <vector>

#include "ndarray/ndarray.h"
#include "nn/data/affine.h"
#include "nn/data/augment.h"

namespace mx::data {

/// Identifies the samples of a batch, so that a random transform can derive each sample's random numbers.
struct SampleIds {
  NDArray indices;  ///< i64 (n,): their numbers in the data set
  int64_t seed = 0;
  int64_t epoch = 0;
};

class Transform {
 public:
  /// One part of a transform. Its random numbers come from the sources `source`, `source` + 1, ...
  struct Part {
    /// If not empty, this part resamples images by a random affine map; `apply` is then ignored.
    std::vector<AffineStep> steps{};
    double fill = 0;  ///< value of pixels that come from outside the image
    /// Used if `steps` is empty: the function of the whole batch.
    std::function<NDArray(const NDArray& batch, const SampleIds& ids, uint32_t source)> apply{};
  };

  /// Changes nothing.
  Transform() = default;
  explicit Transform(Part part) { append(std::move(part)); }

  NDArray operator()(const NDArray& batch, const SampleIds& ids) const;

  /// Returns the transform that applies this one first, then `next` to its result.
  Transform then(const Transform& next) const;
  bool empty() const { return parts_.empty(); }

 private:
  void append(Part part);

  std::vector<Part> parts_;
};

/// A transform that applies the given ones in order.
Transform compose(std::initializer_list<Transform> transforms);

/// Converts u8 from 0 to 255 to f32 from 0 to 1. Floating point stays unchanged.
Transform to_float();
/// (x - mean) / stddev. Each has one number, or one per channel, which is dimension 1 of the batch. Types
/// that are not floating point become f32.
Transform normalise(const std::vector<double>& mean, const std::vector<double>& stddev);
/// Reshapes each sample to this shape, which must have as many elements.
Transform reshape(const Shape& sample);

/// Moves the content by up to `pixels` in each direction, also by fractions of a pixel. Pixels beyond the
/// edge have the value `fill`.
Transform random_shift(double pixels, double fill = 0);
/// Rotates the content about the centre, by an angle from -degrees to degrees.
Transform random_rotate(double degrees, double fill = 0);
/// Scales the content about the centre, by a factor from low to high.
Transform random_scale(double low, double high, double fill = 0);
/// Mirrors the content left to right with that probability.
Transform random_flip(double probability = 0.5);

/// Adds normal random numbers; the result is f32.
Transform add_noise(double stddev);

/// Applies a function of whole batches, which calls operators. It is called when the batch is pushed, and
/// must keep the number of samples.
Transform map_batch(std::function<NDArray(const NDArray& batch)> function);
Transform map_batch(std::function<NDArray(const NDArray& batch, const SampleIds& ids)> function);
/// Applies a function of one sample, with its own random numbers; it runs in the engine (augment.h).
Transform map_samples(SampleFunction function);

}  // namespace mx::data
