#include "nn/data/augment.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "ndarray/kernels/copy.h"
#include "ndarray/kernels/parallel.h"
#include "operators/custom.h"
#include "operators/kernels/random_fill.h"

namespace mx::data {
namespace {

void infer_like_batch(InferContext& c) {
  MX_CHECK(c.shape(0).rank() >= 1 && c.dtype(1) == i64 && c.shape(1) == (Shape{c.shape(0)[0]}),
           InvalidArgument, "[", c.name(),
           "] expected a batch (n, ..) and the indices of its samples, i64 (n,), got shape ", c.shape(0),
           " and ", c.dtype(1), " of shape ", c.shape(1));
  c.output(c.shape(0), c.dtype(0));
}

int64_t index_of(const Tensor& indices, int64_t i) {
  return indices.as<const int64_t>()[i * indices.strides[0]];
}

struct AddNoise : CustomOp {
  int64_t key = 0, source = 0;
  double deviation = 0;

  template <class V>
  static void fields(V&& v) {
    v("key", &AddNoise::key, "the key derived from the seed and the epoch");
    v("source", &AddNoise::source, "the number of this source of random numbers");
    v("deviation", &AddNoise::deviation, "the standard deviation of the noise");
  }

  static Operator record() {
    return {.kernel = {"add_noise"},
            .doc =
                "Batch plus normally distributed noise, which depends only on the key, the source and each "
                "sample's index.",
            .inputs = {"batch", "indices"}};
  }

  void infer(InferContext& c) const {
    MX_CHECK(c.dtype(0) == f32, InvalidArgument, "[add_noise] expected a batch in f32, got ", c.dtype(0));
    MX_CHECK(std::isfinite(deviation) && deviation >= 0, InvalidArgument,
             "[add_noise] expected a deviation that is finite and not negative, got ", deviation);
    infer_like_batch(c);
  }

  void forward(const KernelArgs& args) const {
    using mx::kernels::detail::kRandomChunk;
    const Tensor& out = args.out[0];
    mx::kernels::copy(out, args.in[0]);
    if (out.numel() == 0) return;
    const int64_t n = out.shape[0], per_sample = out.numel() / n;
    const int64_t chunks = (per_sample + kRandomChunk - 1) / kRandomChunk;
    const auto scale = static_cast<float>(deviation);
    const auto convert = [](const uint32_t* words, int64_t count, float* values) {
      mx::kernels::detail::to_normal(words, count, values);
    };
    parallel_for(n * chunks, 8, [&](int64_t begin, int64_t end) {
      mx::kernels::detail::Chunk<1, float> chunk;
      for (int64_t c = begin; c < end; ++c) {
        const int64_t sample = c / chunks, first = c % chunks * kRandomChunk;
        const int64_t count = std::min(kRandomChunk, per_sample - first);
        const uint64_t seed = sample_key(static_cast<uint64_t>(key), index_of(args.in[1], sample),
                                         static_cast<uint32_t>(source));
        const float* const noise = chunk.make(seed, static_cast<uint64_t>(first), count, convert);
        float* const to = out.as<float>() + sample * per_sample + first;
        for (int64_t i = 0; i < count; ++i) to[i] += scale * noise[i];
      }
    });
  }
};

struct MapSamples : CustomOp {
  std::shared_ptr<const SampleFunction> function;
  int64_t key = 0, source = 0;

  static Operator record() {
    return {.kernel = {"map_samples"},
            .doc = "Batch in which a user function has changed each sample.",
            .inputs = {"batch", "indices"}};
  }

  void infer(InferContext& c) const { infer_like_batch(c); }

  void forward(const KernelArgs& args) const {
    const Tensor& out = args.out[0];
    mx::kernels::copy(out, args.in[0]);
    parallel_for(out.shape[0], 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) change(out.narrowed(0, i, 1), index_of(args.in[1], i));
    });
  }

 private:
  void change(Tensor sample, int64_t index) const {
    sample.shape.erase(0);
    sample.strides.erase(0);
    SampleRandom random(sample_key(static_cast<uint64_t>(key), index, static_cast<uint32_t>(source)));
    try {
      (*function)(sample, random);
    } catch (...) {
      std::rethrow_exception(rewrite_current_exception([&](const std::string& text) {
        return mx::detail::concat(text, " (in the function given to map_samples, for sample ", index, ")");
      }));
    }
  }
};

}  // namespace

NDArray add_noise(const Arg& batch, const NDArray& indices, uint64_t key, uint32_t source, double deviation) {
  AddNoise attrs;
  attrs.key = static_cast<int64_t>(key);
  attrs.source = source;
  attrs.deviation = deviation;
  return call(register_custom<AddNoise>(), attrs, Arg(batch.array.to(f32), batch.where), indices);
}

NDArray map_samples(const Arg& batch, const NDArray& indices, uint64_t key, uint32_t source,
                    std::shared_ptr<const SampleFunction> function) try {
  // Not in the registry: the operator cannot be called without the function.
  static const Operator op = mx::detail::make_custom<MapSamples>();
  MX_CHECK(function != nullptr && *function != nullptr, InvalidArgument,
           "[map_samples] expected a function, got an empty one");
  MapSamples attrs;
  attrs.function = std::move(function);
  attrs.key = static_cast<int64_t>(key);
  attrs.source = source;
  return call(op, attrs, batch, indices);
} catch (const Error&) {
  mx::detail::rethrow_at(batch.where);
}

}  // namespace mx::data
