// Transforms: what is done to each batch of a loader before the program sees it.
//
//   data::Transform augment = data::compose({data::random_rotate(15), data::random_scale(0.9, 1.1),
//                                            data::random_shift(2), data::add_noise(0.05),
//                                            data::normalise({0.1307}, {0.3081})});
//   data::Loader loader(data, {.batch_size = 64, .shuffle = true, .transform = augment});
//
// A transform is a value that knows what to do; it has no state. Applied to a batch it pushes operations and
// returns at once. What random ones do to a sample is a function of the loader's seed, the epoch, the
// sample's number in the data set and its place in the transform alone: not of the batch that the sample is
// in, of shards, of the order, or of threads.
//
// Random shifts, rotations, scales and flips that follow each other are one resampling of the image, so it
// loses sharpness once. Images are (n, .., height, width), f32 after it.
//
// Constructors throw InvalidArgument for limits that make no sense; applying throws it for batches of a shape
// or type that does not fit. Any thread may use a transform.
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
  /// One part of a transform, whose random numbers come from the sources `source`, `source` + 1, ...
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

  /// This first, `next` on what comes out.
  Transform then(const Transform& next) const;
  bool empty() const { return parts_.empty(); }

 private:
  void append(Part part);

  std::vector<Part> parts_;
};

/// A transform that applies the given ones in order.
Transform compose(std::initializer_list<Transform> transforms);

/// u8 from 0 to 255 becomes f32 from 0 to 1; floating point stays as it is.
Transform to_float();
/// (x - mean) / deviation. One number each for everything, or one per channel, which is dimension 1 of the
/// batch. Types that are not floating point become f32.
Transform normalise(const std::vector<double>& mean, const std::vector<double>& deviation);
/// Samples of another shape with as many elements.
Transform reshape(const Shape& sample);

/// Moves the content by up to `pixels` in each direction, not in whole pixels only. Beyond the edge is
/// `fill`.
Transform random_shift(double pixels, double fill = 0);
/// Turns it about the centre, by an angle from -degrees to degrees.
Transform random_rotate(double degrees, double fill = 0);
/// Scales it about the centre, by a factor from low to high.
Transform random_scale(double low, double high, double fill = 0);
/// Mirrors it left to right with that probability.
Transform random_flip(double probability = 0.5);

/// Adds normal numbers; the result is f32.
Transform add_noise(double deviation);

/// A function of whole batches, made of calls of operators. Called when the batch is pushed; it must keep the
/// number of samples.
Transform map_batch(std::function<NDArray(const NDArray& batch)> function);
Transform map_batch(std::function<NDArray(const NDArray& batch, const SampleIds& ids)> function);
/// A function of one sample, with random numbers of its own; it runs in the engine (augment.h).
Transform map_samples(SampleFunction function);

}  // namespace mx::data
