// Records of the random operators. Generators are in generator.cc.
#include "operators/random.h"

#include "engine/base/check.h"
#include "operators/cuda_kernels.h"
#include "operators/elementwise_binary.h"
#include "operators/kernels/binary.h"
#include "operators/kernels/random.h"
#include "operators/random_records.h"
#include "operators/select.h"

namespace mx::detail {
namespace {

constexpr int64_t kDirectElements = 512, kDirectSlow = 64;

/// A key, as the kernels take it.
struct Place {
  uint64_t seed, offset;

  explicit Place(const Tensor& key)
      : seed(static_cast<uint64_t>(key.as<int64_t>()[0])),
        offset(static_cast<uint64_t>(key.as<int64_t>()[key.strides[0]])) {}
};

void check_key(const InferContext& c, size_t i) {
  MX_CHECK(c.dtype(i) == i64 && c.shape(i) == Shape({2}), InvalidArgument, "[", c.name(),
           "] expected a generator's state or key, i64 (2,), got ", c.dtype(i), " ", c.shape(i));
}

void infer_key(InferContext& c) {
  check_key(c, 0);
  const int64_t count = c.attr<KeyAttrs>().count;
  MX_CHECK(count >= 0, InvalidArgument, "[", c.name(), "] expected a count of 0 or more, got ", count);
  c.output({2}, i64);
}

void run_key(const KernelArgs& args) {
  int64_t* const state = args.in[0].as<int64_t>();
  const int64_t step = args.in[0].strides[0];
  int64_t* const key = args.out[0].as<int64_t>();
  key[0] = state[0];
  key[args.out[0].strides[0]] = state[step];
  state[step] = static_cast<int64_t>(static_cast<uint64_t>(state[step]) +
                                     static_cast<uint64_t>(args.attr<KeyAttrs>().count));
}

// Distributions. A Fill function is called as f(target, attrs, seed, offset).

using Fill = void (*)(const Tensor&, const FillAttrs&, uint64_t, uint64_t);

void infer_fill(InferContext& c) {
  const auto& attrs = c.attr<FillAttrs>();
  check_key(c, 0);
  checked_numel(attrs.shape, size_of(attrs.dtype), c.name());
  c.output(attrs.shape, attrs.dtype);
}

template <Fill kFill>
void run_fill(const KernelArgs& args) {
  const Place place(args.in[0]);
  kFill(args.out[0], args.attr<FillAttrs>(), place.seed, place.offset);
}

void fill_uniform(const Tensor& t, const FillAttrs& a, uint64_t seed, uint64_t offset) {
  kernels::random_uniform(t, a.a, a.b, seed, offset);
}
void fill_normal(const Tensor& t, const FillAttrs& a, uint64_t seed, uint64_t offset) {
  kernels::random_normal(t, a.a, a.b, seed, offset);
}
void fill_bernoulli(const Tensor& t, const FillAttrs& a, uint64_t seed, uint64_t offset) {
  kernels::random_bernoulli(t, a.a, seed, offset);
}
void fill_exponential(const Tensor& t, const FillAttrs& a, uint64_t seed, uint64_t offset) {
  kernels::random_exponential(t, a.a, seed, offset);
}
void fill_gamma(const Tensor& t, const FillAttrs& a, uint64_t seed, uint64_t offset) {
  kernels::random_gamma(t, a.a, a.b, seed, offset);
}
void fill_poisson(const Tensor& t, const FillAttrs& a, uint64_t seed, uint64_t offset) {
  kernels::random_poisson(t, a.a, seed, offset);
}
void fill_binomial(const Tensor& t, const FillAttrs& a, uint64_t seed, uint64_t offset) {
  kernels::random_binomial(t, static_cast<int64_t>(a.a), a.b, seed, offset);
}

void infer_randint(InferContext& c) {
  const auto& attrs = c.attr<IntegerAttrs>();
  check_key(c, 0);
  MX_CHECK(attrs.low < attrs.high, InvalidArgument, "[", c.name(), "] expected low < high, got ", attrs.low,
           " and ", attrs.high);
  MX_CHECK(is_integral(attrs.dtype), InvalidArgument, "[", c.name(), "] expected an integer type, got ",
           attrs.dtype);
  check_fits(attrs.low, attrs.dtype, c.name());
  check_fits(attrs.high - 1, attrs.dtype, c.name());
  checked_numel(attrs.shape, size_of(attrs.dtype), c.name());
  c.output(attrs.shape, attrs.dtype);
}

void run_randint(const KernelArgs& args) {
  const Place place(args.in[0]);
  const auto& attrs = args.attr<IntegerAttrs>();
  kernels::random_integers(args.out[0], attrs.low, attrs.high, place.seed, place.offset);
}

void infer_bernoulli_of(InferContext& c) {
  check_key(c, 1);
  MX_CHECK(is_floating(c.dtype(0)), InvalidArgument, "[", c.name(),
           "] expected probabilities of a floating type, got ", c.dtype(0));
  c.output(c.shape(0), c.attr<TypeAttrs>().dtype);
}

void run_bernoulli_of(const KernelArgs& args) {
  const Place place(args.in[1]);
  kernels::random_bernoulli(args.out[0], args.in[0], place.seed, place.offset);
}

void infer_permutation(InferContext& c) {
  check_key(c, 0);
  const int64_t n = c.attr<KeyAttrs>().count;
  MX_CHECK(n >= 0, InvalidArgument, "[", c.name(), "] expected a size of 0 or more, got ", n);
  c.output({n}, i64);
}

void run_permutation(const KernelArgs& args) {
  const Place place(args.in[0]);
  kernels::random_permutation(args.out[0], place.seed, place.offset);
}

void infer_categorical(InferContext& c) {
  const auto& attrs = c.attr<CategoricalAttrs>();
  check_key(c, 1);
  Shape shape = c.shape(0);
  MX_CHECK(shape.rank() >= 1 && is_floating(c.dtype(0)), InvalidArgument, "[", c.name(),
           "] expected weights (.., n) of a floating type, got ", c.dtype(0), " ", shape);
  MX_CHECK(attrs.samples >= 0, InvalidArgument, "[", c.name(),
           "] expected a number of samples of 0 or more, got ", attrs.samples);
  shape[shape.rank() - 1] = attrs.samples;
  c.output(shape, i64);
}

void run_categorical(const KernelArgs& args) {
  const Place place(args.in[1]);
  kernels::random_categorical(args.out[0], args.in[0], args.attr<CategoricalAttrs>().logits, place.seed,
                              place.offset);
}

// Dropout

void infer_dropout(InferContext& c) {
  const double p = c.attr<DropoutAttrs>().p;
  check_key(c, 1);
  MX_CHECK(is_floating(c.dtype(0)), InvalidArgument, "[", c.name(), "] expected a floating type, got ",
           c.dtype(0));
  MX_CHECK(p >= 0 && p <= 1, InvalidArgument, "[", c.name(), "] expected a probability from 0 to 1, got ", p);
  c.output(c.shape(0), c.dtype(0));
  c.output(c.shape(0), bool_);
}

/// Returns the factor of elements that are kept.
double dropout_scale(const DropoutAttrs& attrs) { return attrs.p < 1 ? 1 / (1 - attrs.p) : 0; }

void gradient_dropout(GradientContext& g) {
  const double scale = dropout_scale(g.attr<DropoutAttrs>());
  if (g.head(0).defined()) g.set(0, where(g.output(1), g.head(0) * scale, 0));
}

void run_dropout(const KernelArgs& args) {
  const Place place(args.in[1]);
  const Tensor &y = args.out[0], &mask = args.out[1], &x = args.in[0];
  const auto& attrs = args.attr<DropoutAttrs>();
  kernels::random_bernoulli(mask, 1 - attrs.p, place.seed, place.offset);
  // Dropped elements are computed too: a branch on a random bit is often mispredicted.
  double scale = dropout_scale(attrs), zero = 0;
  auto factor = static_cast<float>(scale);
  const Strides same = Shape::filled(y.rank(), 0);
  const Tensor times =
      y.dtype == f64 ? Tensor{&scale, f64, y.shape, same} : Tensor{&factor, f32, y.shape, same};
  kernels::binary(kernels::BinaryOp::mul, y, x, times);
  kernels::where(y, mask, y, {&zero, y.dtype, y.shape, same});
}

template <Fill kFill>
constexpr Operator fill_record(const char* name, const char* doc, int64_t direct, KernelFn on_gpu = nullptr) {
  return {.kernel = {name, run_fill<kFill>, on_gpu, direct},
          .doc = doc,
          .family = "random",
          .inputs = {"key"},
          .attrs = &kAttrType<FillAttrs>,
          .infer = infer_fill,
          .dtypes = {i64}};
}

}  // namespace

constexpr Operator kRandomKey = {.kernel = {"random_key", run_key, cuda::random_key, kDirectElements},
                                 .doc =
                                     "Reserves `count` positions of a generator's stream and advances the "
                                     "generator's state. The key holds the seed and the first position.",
                                 .family = "random",
                                 .inputs = {"state"},
                                 .outputs = {"key"},
                                 .attrs = &kAttrType<KeyAttrs>,
                                 .infer = infer_key,
                                 .dtypes = {i64},
                                 .updates = bit_set(0),
                                 .random = true};
constexpr Operator kUniform = fill_record<fill_uniform>("uniform", "Uniformly distributed numbers in [a, b).",
                                                        kDirectElements, cuda::uniform);
constexpr Operator kNormal =
    fill_record<fill_normal>("normal", "Normally distributed numbers with mean a and standard deviation b.",
                             kDirectSlow, cuda::normal);
constexpr Operator kBernoulli = fill_record<fill_bernoulli>(
    "bernoulli", "Bernoulli samples: 1 with probability a, else 0.", kDirectElements, cuda::bernoulli);
constexpr Operator kExponential = fill_record<fill_exponential>(
    "exponential", "Exponentially distributed numbers with rate a (mean 1 / a).", kDirectSlow,
    cuda::exponential);
constexpr Operator kGamma = fill_record<fill_gamma>(
    "gamma", "Gamma-distributed numbers with shape parameter a and scale b.", kDirectSlow, cuda::gamma);
constexpr Operator kPoisson = fill_record<fill_poisson>("poisson", "Poisson-distributed numbers with mean a.",
                                                        kDirectSlow, cuda::poisson);
constexpr Operator kBinomial = fill_record<fill_binomial>(
    "binomial", "Binomially distributed numbers: successes in a trials with success probability b.",
    kDirectSlow, cuda::binomial);
constexpr Operator kRandint = {.kernel = {"randint", run_randint, cuda::randint, kDirectElements},
                               .doc = "Uniformly distributed integers in [low, high).",
                               .family = "random",
                               .inputs = {"key"},
                               .attrs = &kAttrType<IntegerAttrs>,
                               .infer = infer_randint,
                               .dtypes = {i64}};
constexpr Operator kBernoulliOf = {
    .kernel = {"bernoulli_of", run_bernoulli_of, cuda::bernoulli_of, kDirectElements},
    .doc = "Bernoulli samples with one probability per element: 1 with that probability, else 0.",
    .family = "random",
    .inputs = {"probability", "key"},
    .attrs = &kAttrType<TypeAttrs>,
    .infer = infer_bernoulli_of,
    .gradient = zero_gradient,
    .dtypes = {f32, f64, f16, bf16}};
constexpr Operator kPermutation = {
    .kernel = {"permutation", run_permutation, cuda::permutation, kDirectElements},
    .doc = "Random permutation of the integers from 0 to count - 1, i64 of shape (count,).",
    .family = "random",
    .inputs = {"key"},
    .attrs = &kAttrType<KeyAttrs>,
    .infer = infer_permutation,
    .dtypes = {i64}};
constexpr Operator kCategorical = {
    .kernel = {"categorical", run_categorical, cuda::categorical, kDirectSlow},
    .doc =
        "Indices into the last dimension of weights (.., n), drawn with replacement in proportion to the "
        "weights: i64 of shape (.., samples).",
    .family = "random",
    .inputs = {"weights", "key"},
    .attrs = &kAttrType<CategoricalAttrs>,
    .infer = infer_categorical,
    .dtypes = {f32, f64, f16, bf16}};
constexpr Operator kDropout = {.kernel = {"dropout", run_dropout, cuda::dropout, kDirectElements},
                               .doc =
                                   "Dropout: each element of x is set to 0 with probability p, and divided "
                                   "by 1 - p otherwise. The mask is true for the elements that were kept.",
                               .family = "random",
                               .inputs = {"x", "key"},
                               .outputs = {"y", "mask"},
                               .attrs = &kAttrType<DropoutAttrs>,
                               .infer = infer_dropout,
                               .gradient = gradient_dropout,
                               .gradient_uses = {.outputs = bit_set(1)},
                               .dtypes = {f32, f64, f16, bf16}};

OperatorFamily family_random() {
  return {&kRandomKey, &kUniform, &kNormal,   &kRandint,     &kBernoulli,   &kBernoulliOf, &kExponential,
          &kGamma,     &kPoisson, &kBinomial, &kPermutation, &kCategorical, &kDropout};
}

}  // namespace mx::detail
