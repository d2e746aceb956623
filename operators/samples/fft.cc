#include "operators/fft.h"

#include "operators/elementwise_binary.h"
#include "operators/samples/table.h"

namespace mx::detail {
namespace {

NDArray some_numbers(const Shape& shape) {
  return (((arange(shape.numel()) * 7919 + 13) % 101 - 50).to(f32) / 16).reshape(shape);
}

std::vector<Sample> samples_fft() {
  const auto attrs = [](int64_t axis, bool inverse, double scale) {
    return attrs_of("fft", {{"axis", axis}, {"inverse", inverse}, {"scale", scale}});
  };
  return {{{some_numbers({2, 6, 2})}, attrs(-1, false, 1), "(2, 6) complex"},
          {{some_numbers({3, 2, 2})}, attrs(0, true, 0.5), "inverse of (3, 2) complex along 0"},
          {{some_numbers({37, 2})}, attrs(0, false, 1), "a length with a large prime factor"}};
}

std::vector<Sample> samples_rfft() {
  const auto attrs = [](int64_t axis, double scale) {
    return attrs_of("rfft", {{"axis", axis}, {"scale", scale}});
  };
  return {{{some_numbers({2, 6})}, attrs(-1, 1), "(2, 6)"},
          {{some_numbers({5, 2})}, attrs(0, 0.5), "(5, 2) along 0"},
          {{some_numbers({1})}, attrs(-1, 1), "one number"},
          {{some_numbers({2})}, attrs(-1, 1), "two numbers"}};
}

std::vector<Sample> samples_irfft() {
  const auto attrs = [](int64_t axis, int64_t n, double scale) {
    return attrs_of("irfft", {{"axis", axis}, {"n", n}, {"scale", scale}});
  };
  return {{{some_numbers({3, 4, 2})}, attrs(-1, 6, 1), "even"},
          {{some_numbers({3, 2, 2})}, attrs(0, 5, 0.5), "odd, along 0"},
          {{some_numbers({1, 2})}, attrs(-1, 1, 1), "one number"}};
}

}  // namespace

void add_fft_samples(SampleTable& table) {
  table["fft"] = samples_fft;
  table["rfft"] = samples_rfft;
  table["irfft"] = samples_irfft;
}

}  // namespace mx::detail
