#include "nn/data/batch_transform.h"

#include <cmath>
#include <utility>

#include "engine/base/check.h"
#include "nn/data/sample_random.h"
#include "operators/custom.h"
#include "operators/elementwise_binary.h"
#include "operators/indexing.h"
#include "operators/shape_ops.h"

namespace mx::data {
namespace {

/// Random numbers of mixup draw from this source, which is beyond those of transforms of field 0.
constexpr uint32_t kMixupSource = 0x6d697875;

/// Returns log(x) for x from the gamma distribution of that shape. In logarithms, because for small shapes x
/// is often too small for a double. Source: Marsaglia and Tsang, "A simple method for generating gamma
/// variables", 2000.
double log_gamma_variate(double shape, SampleRandom& random) {
  if (shape < 1) {
    const double log_u = std::log(1 - random.uniform());
    return log_gamma_variate(shape + 1, random) + log_u / shape;
  }
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = random.normal(), cube = 1 + c * x;
    if (cube <= 0) continue;
    const double v = cube * cube * cube;
    if (std::log(1 - random.uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return std::log(d * v);
  }
}

struct MixupWeights : CustomOp {
  int64_t key = 0;
  double alpha = 1;

  template <class V>
  static void fields(V&& v) {
    v("key", &MixupWeights::key, "the key derived from the seed and the epoch");
    v("alpha", &MixupWeights::alpha, "both parameters of the beta distribution");
  }
  static Operator record() {
    return {.kernel = {"mixup_weights"},
            .doc =
                "A number from Beta(alpha, alpha) for each sample, which depends only on the key and the "
                "sample's index.",
            .inputs = {"indices"}};
  }
  void infer(InferContext& c) const {
    MX_CHECK(c.dtype(0) == i64 && c.shape(0).rank() == 1, InvalidArgument,
             "[mixup_weights] expected indices in i64 of rank 1, got ", c.dtype(0), " of shape ", c.shape(0));
    MX_CHECK(alpha > 0 && std::isfinite(alpha), InvalidArgument,
             "[mixup_weights] expected an alpha that is finite and above 0, got ", alpha);
    c.output(c.shape(0), f32);
  }
  void forward(const KernelArgs& args) const {
    const Tensor& indices = args.in[0];
    for (int64_t i = 0; i < indices.shape[0]; ++i) {
      const int64_t index = indices.as<const int64_t>()[i * indices.strides[0]];
      SampleRandom random(sample_key(static_cast<uint64_t>(key), index, kMixupSource));
      const double a = log_gamma_variate(alpha, random), b = log_gamma_variate(alpha, random);
      args.out[0].as<float>()[i] = static_cast<float>(1 / (1 + std::exp(b - a)));
    }
  }
};

NDArray mixed(const NDArray& x, const NDArray& weights) {
  Shape shape = Shape::filled(x.rank(), 1);
  shape[0] = x.size(0);
  const NDArray w = weights.reshape(shape), next = roll(x, -1, 0);
  return next + (x - next) * w;
}

}  // namespace

BatchTransform chain_batches(std::vector<BatchTransform> transforms) {
  for (const BatchTransform& transform : transforms)
    MX_CHECK(transform != nullptr, InvalidArgument, "[chain_batches] expected functions, got an empty one");
  return [transforms = std::move(transforms)](std::vector<NDArray> fields, const SampleIds& ids) {
    for (const BatchTransform& transform : transforms) fields = transform(std::move(fields), ids);
    return fields;
  };
}

BatchTransform mixup(double alpha, int64_t classes) {
  MX_CHECK(alpha > 0 && std::isfinite(alpha) && classes > 0, InvalidArgument,
           "[mixup] expected an alpha that is finite and above 0 and at least one class, got ", alpha,
           " and ", classes);
  return [alpha, classes](std::vector<NDArray> fields, const SampleIds& ids) {
    MX_CHECK(fields.size() >= 2, InvalidArgument,
             "[mixup] expected a batch of at least two fields, samples and labels, got ", fields.size());
    NDArray labels = fields[1];
    if (!is_floating(labels.dtype())) {
      MX_CHECK(labels.rank() == 1, InvalidArgument, "[mixup] expected labels (n,), got shape ",
               labels.shape());
      labels = one_hot(labels.to(i64), classes);
    }
    MX_CHECK(labels.rank() == 2 && labels.size(1) == classes, InvalidArgument,
             "[mixup] expected labels i64 (n,) or f32 (n, ", classes, "), got ", labels.dtype(), " of shape ",
             labels.shape());
    MixupWeights attrs;
    attrs.key = static_cast<int64_t>(epoch_key(ids.seed, ids.epoch, RandomPurpose::sample));
    attrs.alpha = alpha;
    const NDArray weights = call(register_custom<MixupWeights>(), attrs, ids.indices);
    fields[0] = mixed(fields[0].to(f32), weights.to(fields[0].context()));
    fields[1] = mixed(labels.to(f32), weights.to(labels.context()));
    return fields;
  };
}

}  // namespace mx::data
