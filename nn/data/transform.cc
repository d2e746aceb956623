#include "nn/data/transform.h"

#include <cmath>
#include <memory>
#include <utility>

#include "engine/base/check.h"
#include "nn/data/sample_random.h"
#include "operators/elementwise_binary.h"

namespace mx::data {
namespace {

NDArray apply_affine(const Transform::Part& part, const NDArray& batch, const SampleIds& ids,
                     uint32_t source) {
  MX_CHECK(batch.rank() >= 3, InvalidArgument,
           "[random_affine] expected images (n, .., height, width), got shape ", batch.shape());
  const uint64_t key = epoch_key(ids.seed, ids.epoch, RandomPurpose::sample);
  const NDArray matrices =
      random_affine(ids.indices, key, source, part.steps, batch.size(-2), batch.size(-1));
  return warp_affine(batch, matrices.to(batch.context()), part.fill);
}

Transform geometry(AffineStep::Kind kind, double low, double high, double fill, const char* op) {
  MX_CHECK(std::isfinite(low) && std::isfinite(high) && low <= high && std::isfinite(fill), InvalidArgument,
           "[", op, "] expected finite limits, low <= high, got ", low, " and ", high);
  Transform::Part part;
  part.steps.push_back({kind, low, high});
  part.fill = fill;
  return Transform(std::move(part));
}

template <class F>
Transform plain(F function) {
  Transform::Part part;
  part.apply = std::move(function);
  return Transform(std::move(part));
}

NDArray as_floating(const NDArray& batch) { return is_floating(batch.dtype()) ? batch : batch.to(f32); }

// Returns the values in shape (c, 1, 1) for a batch (n, c, h, w), in the batch's type, so that the result of
// an operation on both keeps that type.
NDArray per_channel(const std::vector<double>& values, const NDArray& batch) {
  Shape shape = Shape::filled(batch.rank() - 1, 1);
  shape[0] = static_cast<int64_t>(values.size());
  return array(values).to(batch.dtype()).to(batch.context()).reshape(shape);
}

}  // namespace

NDArray Transform::operator()(const NDArray& batch, const SampleIds& ids) const {
  NDArray result = batch;
  SampleIds here = ids;  // with indices on the device of the batch
  uint32_t source = 0;
  for (const Part& part : parts_) {
    here.indices = ids.indices.to(result.context());
    if (part.steps.empty()) {
      result = part.apply(result, here, source++);
    } else {
      result = apply_affine(part, result, here, source);
      source += static_cast<uint32_t>(part.steps.size());
    }
    MX_CHECK(result.defined() && result.rank() >= 1 && result.size(0) == batch.size(0), InvalidArgument,
             "[Transform] expected a batch of ", batch.size(0), " samples from each part, got ",
             result.defined() ? to_string(result.shape()) : "an empty handle");
  }
  return result;
}

void Transform::append(Part part) {
  MX_CHECK(!part.steps.empty() || part.apply != nullptr, InvalidArgument,
           "[Transform] expected a part that has steps or a function, got one with neither");
  // Consecutive maps are combined into one if they have the same fill. Maps of flips only have no pixels
  // beyond the edge, so their fill does not matter.
  if (!part.steps.empty() && !parts_.empty() && !parts_.back().steps.empty()) {
    Part& last = parts_.back();
    const auto only_flips = [](const Part& p) {
      for (const AffineStep& step : p.steps)
        if (step.kind != AffineStep::Kind::flip) return false;
      return true;
    };
    if (last.fill == part.fill || only_flips(last) || only_flips(part)) {
      if (only_flips(last)) last.fill = part.fill;
      last.steps.insert(last.steps.end(), part.steps.begin(), part.steps.end());
      return;
    }
  }
  parts_.push_back(std::move(part));
}

Transform Transform::then(const Transform& next) const {
  Transform both = *this;
  for (const Part& part : next.parts_) both.append(part);
  return both;
}

Transform compose(std::initializer_list<Transform> transforms) {
  Transform all;
  for (const Transform& transform : transforms) all = all.then(transform);
  return all;
}

Transform to_float() {
  return plain([](const NDArray& batch, const SampleIds&, uint32_t) {
    if (is_floating(batch.dtype())) return batch;
    MX_CHECK(batch.dtype() == u8, InvalidArgument,
             "[to_float] expected a batch in u8 or floating point, got ", batch.dtype());
    NDArray made = batch.to(f32);
    made /= 255.f;
    return made;
  });
}

Transform normalise(const std::vector<double>& mean, const std::vector<double>& deviation) {
  MX_CHECK(!mean.empty() && mean.size() == deviation.size(), InvalidArgument,
           "[normalise] expected as many deviations as means, got ", deviation.size(), " and ", mean.size());
  for (size_t i = 0; i < mean.size(); ++i)
    MX_CHECK(std::isfinite(mean[i]) && std::isfinite(deviation[i]) && deviation[i] > 0, InvalidArgument,
             "[normalise] expected finite means and deviations above 0, got ", mean[i], " and ", deviation[i],
             " for channel ", i);
  return plain([mean, deviation](const NDArray& batch, const SampleIds&, uint32_t) -> NDArray {
    const NDArray x = as_floating(batch);
    if (mean.size() == 1) {
      NDArray made = x - mean[0];
      made /= deviation[0];
      return made;
    }
    MX_CHECK(x.rank() >= 2 && x.size(1) == static_cast<int64_t>(mean.size()), InvalidArgument,
             "[normalise] expected a batch (n, ", mean.size(), ", ..), got shape ", x.shape());
    NDArray made = x - per_channel(mean, x);
    made /= per_channel(deviation, x);
    return made;
  });
}

Transform reshape(const Shape& sample) {
  return plain([sample](const NDArray& batch, const SampleIds&, uint32_t) {
    Shape shape = sample;
    shape.insert(0, batch.size(0));
    return batch.reshape(shape);
  });
}

Transform random_shift(double pixels, double fill) {
  return geometry(AffineStep::Kind::shift, -pixels, pixels, fill, "random_shift");
}

Transform random_rotate(double degrees, double fill) {
  return geometry(AffineStep::Kind::rotate, -degrees, degrees, fill, "random_rotate");
}

Transform random_scale(double low, double high, double fill) {
  MX_CHECK(low > 0, InvalidArgument, "[random_scale] expected scale factors above 0, got ", low);
  return geometry(AffineStep::Kind::scale, low, high, fill, "random_scale");
}

Transform random_flip(double probability) {
  MX_CHECK(probability >= 0 && probability <= 1, InvalidArgument,
           "[random_flip] expected a probability from 0 to 1, got ", probability);
  return geometry(AffineStep::Kind::flip, 0, probability, 0, "random_flip");
}

Transform add_noise(double deviation) {
  MX_CHECK(std::isfinite(deviation) && deviation >= 0, InvalidArgument,
           "[add_noise] expected a deviation that is finite and not negative, got ", deviation);
  return plain([deviation](const NDArray& batch, const SampleIds& ids, uint32_t source) {
    const uint64_t key = epoch_key(ids.seed, ids.epoch, RandomPurpose::sample);
    return add_noise(batch, ids.indices, key, source, deviation);
  });
}

Transform map_batch(std::function<NDArray(const NDArray&)> function) {
  MX_CHECK(function != nullptr, InvalidArgument, "[map_batch] expected a function, got an empty one");
  return plain([function = std::move(function)](const NDArray& batch, const SampleIds&, uint32_t) {
    return function(batch);
  });
}

Transform map_batch(std::function<NDArray(const NDArray&, const SampleIds&)> function) {
  MX_CHECK(function != nullptr, InvalidArgument, "[map_batch] expected a function, got an empty one");
  return plain([function = std::move(function)](const NDArray& batch, const SampleIds& ids, uint32_t) {
    return function(batch, ids);
  });
}

Transform map_samples(SampleFunction function) {
  MX_CHECK(function != nullptr, InvalidArgument, "[map_samples] expected a function, got an empty one");
  return plain([shared = std::make_shared<const SampleFunction>(std::move(function))](
                   const NDArray& batch, const SampleIds& ids, uint32_t source) {
    const uint64_t key = epoch_key(ids.seed, ids.epoch, RandomPurpose::sample);
    return map_samples(batch, ids.indices, key, source, shared);
  });
}

}  // namespace mx::data
