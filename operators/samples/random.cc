#include "operators/random_records.h"
#include "operators/samples/table.h"

namespace mx::detail {
namespace {

NDArray sample_key() { return array<int64_t>({7, 3}); }

std::vector<Sample> samples_key() {
  return {{{sample_key()}, KeyAttrs{5}, "count=5", false}, {{sample_key()}, KeyAttrs{1}, "count=1", false}};
}

std::vector<Sample> samples_fill(DType dtype, double a, double b) {
  return {{{sample_key()}, FillAttrs{{2, 3}, dtype, a, b}, "(2, 3)", false},
          {{sample_key()}, FillAttrs{{}, dtype, a / 2, b + 0.25}, "one number, other parameters", false},
          {{sample_key()}, FillAttrs{{5}, dtype == f32 ? f64 : i32, a, b}, "another type", false}};
}

std::vector<Sample> samples_uniform() { return samples_fill(f32, -1.5, 2); }

std::vector<Sample> samples_normal() { return samples_fill(f32, 1, 0.5); }

std::vector<Sample> samples_bernoulli() { return samples_fill(f32, 0.3, 0); }

std::vector<Sample> samples_exponential() { return samples_fill(f32, 1.5, 0); }

std::vector<Sample> samples_gamma() { return samples_fill(f32, 2.5, 0.5); }

std::vector<Sample> samples_poisson() { return samples_fill(i64, 3.5, 0); }

std::vector<Sample> samples_binomial() { return samples_fill(i64, 40, 0.3); }

std::vector<Sample> samples_randint() {
  return {{{sample_key()}, IntegerAttrs{{2, 3}, i64, -5, 10}, "from -5 to 9", false},
          {{sample_key()}, IntegerAttrs{{4}, u8, 0, 256}, "all u8", false}};
}

std::vector<Sample> samples_bernoulli_of() {
  const NDArray p = array({{0.f, 0.25f, 1.f}, {0.5f, 0.75f, 0.125f}});
  return {{{p, sample_key()}, TypeAttrs{f32}, "a matrix", false},
          {{p.transpose(), sample_key()}, TypeAttrs{bool_}, "transposed, bool", false}};
}

std::vector<Sample> samples_permutation() {
  return {{{sample_key()}, KeyAttrs{6}, "n=6", false}, {{sample_key()}, KeyAttrs{0}, "n=0", false}};
}

std::vector<Sample> samples_categorical() {
  const NDArray w = array({{1.5f, 0.f, 0.25f}, {3.f, 0.5f, 2.f}});
  return {{{w, sample_key()}, CategoricalAttrs{4, false}, "samples=4", false},
          {{w, sample_key()}, CategoricalAttrs{2, true}, "samples=2, logits", false}};
}

std::vector<Sample> samples_dropout() {
  const NDArray x = array({{1.5f, -2.f, 0.25f}, {3.f, -0.5f, 2.f}});
  return {{{x, sample_key()}, DropoutAttrs{0.5}, "p=0.5"},
          {{x.transpose(), sample_key()}, DropoutAttrs{0.2}, "p=0.2, transposed"},
          {{x, sample_key()}, DropoutAttrs{0}, "p=0"},
          {{x, sample_key()}, DropoutAttrs{1}, "p=1"}};
}

}  // namespace

void add_random_samples(SampleTable& table) {
  table["random_key"] = samples_key;
  table["uniform"] = samples_uniform;
  table["normal"] = samples_normal;
  table["bernoulli"] = samples_bernoulli;
  table["exponential"] = samples_exponential;
  table["gamma"] = samples_gamma;
  table["poisson"] = samples_poisson;
  table["binomial"] = samples_binomial;
  table["randint"] = samples_randint;
  table["bernoulli_of"] = samples_bernoulli_of;
  table["permutation"] = samples_permutation;
  table["categorical"] = samples_categorical;
  table["dropout"] = samples_dropout;
}

}  // namespace mx::detail
