#include "nn/data/affine.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/kernels/parallel.h"
#include "ndarray/kernels/strided_loop.h"
#include "nn/data/sample_random.h"
#include "nn/data/warp.h"
#include "operators/custom.h"
#include "operators/scratch.h"

namespace mx::data {
namespace {

constexpr double kDegree = 3.14159265358979323846 / 180;

/// The map p -> l p + t. The origin is the image's centre; x points right and y points down.
struct Map {
  double l[2][2] = {{1, 0}, {0, 1}};
  double t[2] = {0, 0};

  /// Returns the composition that applies `other` first, then this map.
  Map after(const Map& other) const {
    Map made;
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < 2; ++j) made.l[i][j] = l[i][0] * other.l[0][j] + l[i][1] * other.l[1][j];
      made.t[i] = l[i][0] * other.t[0] + l[i][1] * other.t[1] + t[i];
    }
    return made;
  }
};

/// Returns the inverse of a step: the map from places of its result to places of its input.
Map inverse_step(const AffineStep& step, const mx::kernels::PhiloxWords& words) {
  const double u = unit_interval(words[0] | uint64_t{words[1]} << 32),
               v = unit_interval(words[2] | uint64_t{words[3]} << 32);
  const auto value = [&](double unit) { return step.low + (step.high - step.low) * unit; };
  Map map;
  switch (step.kind) {
    case AffineStep::Kind::shift:
      map.t[0] = -value(u);
      map.t[1] = -value(v);
      break;
    case AffineStep::Kind::rotate: {
      const double angle = value(u) * kDegree, c = std::cos(angle), s = std::sin(angle);
      map.l[0][0] = map.l[1][1] = c;
      map.l[0][1] = -s;
      map.l[1][0] = s;
      break;
    }
    case AffineStep::Kind::scale:
      map.l[0][0] = map.l[1][1] = 1 / value(u);
      break;
    case AffineStep::Kind::flip:
      if (u < step.high) map.l[0][0] = -1;
      break;
  }
  return map;
}

struct RandomAffine : CustomOp {
  int64_t key = 0, source = 0, height = 1, width = 1;
  std::vector<int64_t> kinds;
  std::vector<double> low, high;

  template <class V>
  static void fields(V&& v) {
    v("key", &RandomAffine::key, "the key derived from the seed and the epoch");
    v("source", &RandomAffine::source, "the number of the first step's source of random numbers");
    v("height", &RandomAffine::height, "the height of an image in pixels");
    v("width", &RandomAffine::width, "the width of an image in pixels");
    v("kinds", &RandomAffine::kinds, "the kind of each step: 0 shift, 1 rotate, 2 scale, 3 flip");
    v("low", &RandomAffine::low, "the lower limit of each step's parameter");
    v("high", &RandomAffine::high, "the upper limit of each step's parameter");
  }

  static Operator record() {
    return {.kernel = {"random_affine"},
            .doc =
                "Random affine map for each sample, from positions in the result to positions in the source: "
                "f64 (n, 2, 3).",
            .inputs = {"indices"},
            .outputs = {"matrices"}};
  }

  AffineStep step(size_t i) const { return {static_cast<AffineStep::Kind>(kinds[i]), low[i], high[i]}; }

  void infer(InferContext& c) const {
    MX_CHECK(c.dtype(0) == i64 && c.shape(0).rank() == 1, InvalidArgument,
             "[random_affine] expected indices in i64 of rank 1, got ", c.dtype(0), " of shape ", c.shape(0));
    MX_CHECK(kinds.size() == low.size() && kinds.size() == high.size(), InvalidArgument,
             "[random_affine] expected a lower and an upper limit for each of ", kinds.size(), " steps, got ",
             low.size(), " and ", high.size());
    for (size_t i = 0; i < kinds.size(); ++i) check_step(i);
    c.output({c.shape(0)[0], 2, 3}, f64);
  }

  void forward(const KernelArgs& args) const {
    const Tensor& indices = args.in[0];
    double* const out = args.out[0].as<double>();
    const double cx = static_cast<double>(width - 1) / 2, cy = static_cast<double>(height - 1) / 2;
    for (int64_t i = 0; i < indices.shape[0]; ++i) {
      const int64_t index = indices.as<const int64_t>()[i * indices.strides[0]];
      Map map;
      for (size_t k = 0; k < kinds.size(); ++k) {
        const auto from = static_cast<uint32_t>(source + static_cast<int64_t>(k));
        map = map.after(inverse_step(step(k), sample_words(static_cast<uint64_t>(key), index, from)));
      }
      const double centre[2] = {cx, cy};
      for (int r = 0; r < 2; ++r) {
        double* const row = out + 6 * i + 3 * r;
        row[0] = map.l[r][0];
        row[1] = map.l[r][1];
        row[2] = centre[r] + map.t[r] - map.l[r][0] * cx - map.l[r][1] * cy;
      }
    }
  }

 private:
  void check_step(size_t i) const {
    MX_CHECK(kinds[i] >= 0 && kinds[i] <= static_cast<int64_t>(AffineStep::Kind::flip), InvalidArgument,
             "[random_affine] expected a kind of step from 0 to 3, got ", kinds[i]);
    MX_CHECK(std::isfinite(low[i]) && std::isfinite(high[i]) && low[i] <= high[i], InvalidArgument,
             "[random_affine] expected finite limits, low <= high, got ", low[i], " and ", high[i]);
    const AffineStep::Kind kind = step(i).kind;
    MX_CHECK(kind != AffineStep::Kind::scale || low[i] > 0, InvalidArgument,
             "[random_affine] expected scale factors above 0, got ", low[i]);
    MX_CHECK(kind != AffineStep::Kind::flip || (high[i] >= 0 && high[i] <= 1), InvalidArgument,
             "[random_affine] expected a probability from 0 to 1, got ", high[i]);
  }
};

struct WarpAffine : CustomOp {
  double fill = 0;

  template <class V>
  static void fields(V&& v) {
    v("fill", &WarpAffine::fill, "the value of pixels beyond the edge of an image");
  }

  static Operator record() {
    return {.kernel = {"warp_affine"},
            .doc = "Images resampled with bilinear interpolation, each with an affine map of its own.",
            .inputs = {"images", "matrices"}};
  }

  void infer(InferContext& c) const {
    const Shape& images = c.shape(0);
    MX_CHECK(c.dtype(0) == f32 && images.rank() >= 3, InvalidArgument,
             "[warp_affine] expected images (n, .., height, width) in f32, got ", c.dtype(0), " of shape ",
             images);
    const Shape matrices{images[0], 2, 3};
    MX_CHECK(c.dtype(1) == f64 && c.shape(1) == matrices, InvalidArgument,
             "[warp_affine] expected matrices in f64 of shape ", matrices, ", got ", c.dtype(1), " of shape ",
             c.shape(1));
    const int64_t height = images[images.rank() - 2], width = images[images.rank() - 1];
    MX_CHECK(
        height <= kMostWarpSide && width <= kMostWarpSide && warp_scratch(height, width) <= kMostWarpElements,
        InvalidArgument, "[warp_affine] expected images of at most 2^20 x 2^20 and 2^30 pixels, got ",
        images);
    c.output(images, f32);
  }

  void forward(const KernelArgs& args) const {
    const Tensor& images = args.in[0];
    const Tensor& out = args.out[0];
    if (out.numel() == 0) return;
    const int rank = images.rank();
    const int64_t height = images.shape[rank - 2], width = images.shape[rank - 1], plane = height * width;
    const int64_t samples = images.shape[0], per_sample = out.numel() / plane / samples;
    const std::vector<double> matrices = checked(args.in[1]);
    const int64_t grain = std::max<int64_t>(1, mx::kernels::kLoopGrain / 4 / plane);
    parallel_for(samples * per_sample, grain, [&](int64_t begin, int64_t end) {
      const Scratch scratch(args, static_cast<size_t>(warp_scratch(height, width)) * sizeof(float));
      for (int64_t p = begin; p < end; ++p) {
        int64_t offset = 0, rest = p;
        for (int axis = rank - 3; axis >= 0; --axis) {
          offset += rest % images.shape[axis] * images.strides[axis];
          rest /= images.shape[axis];
        }
        const Tensor source{element_at(images.data, f32, offset),
                            f32,
                            {height, width},
                            {images.strides[rank - 2], images.strides[rank - 1]}};
        warp_plane(out.as<float>() + p * plane, source, matrices.data() + 6 * (p / per_sample),
                   static_cast<float>(fill), scratch.as<float>());
      }
    });
  }

 private:
  static std::vector<double> checked(const Tensor& matrices) {
    std::vector<double> made;
    made.reserve(static_cast<size_t>(matrices.numel()));
    for (int64_t i = 0; i < matrices.shape[0]; ++i)
      for (int64_t r = 0; r < 2; ++r)
        for (int64_t k = 0; k < 3; ++k) {
          const double entry = matrices.as<const double>()[i * matrices.strides[0] + r * matrices.strides[1] +
                                                           k * matrices.strides[2]];
          MX_CHECK(std::abs(entry) <= kMostWarpEntry, InvalidArgument,
                   "[warp_affine] expected matrices of finite numbers of at most ", kMostWarpEntry, ", got ",
                   entry, " in the matrix of sample ", i);
          made.push_back(entry);
        }
    return made;
  }
};

}  // namespace

NDArray random_affine(const NDArray& indices, uint64_t key, uint32_t first_source,
                      std::span<const AffineStep> steps, int64_t height, int64_t width) {
  RandomAffine attrs;
  attrs.key = static_cast<int64_t>(key);
  attrs.source = first_source;
  attrs.height = height;
  attrs.width = width;
  for (const AffineStep& step : steps) {
    attrs.kinds.push_back(static_cast<int64_t>(step.kind));
    attrs.low.push_back(step.low);
    attrs.high.push_back(step.high);
  }
  return call(register_custom<RandomAffine>(), attrs, indices);
}

NDArray warp_affine(const Arg& images, const NDArray& matrices, double fill) {
  WarpAffine attrs;
  attrs.fill = fill;
  return call(register_custom<WarpAffine>(), attrs, Arg(images.array.to(f32), images.where), matrices);
}

}  // namespace mx::data
