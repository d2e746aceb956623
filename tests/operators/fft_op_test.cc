// Fourier transforms are compared with the sums that define them, in long double, for every kind of length;
// and with golden values of NumPy, SciPy and PyTorch.
#include "operators/fft.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <functional>
#include <numbers>
#include <string>
#include <vector>

#include "operators/operators.h"
#include "tests/operators/golden_arrays.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;
using test::formula_numbers;
using test::numbers;
using test::Values;

const char* const kFftGolden =
#include <golden_fft.inc>
    ;

void expect_fft(const std::string& name, const NDArray& got) {
  static const test::GoldenArrays all(kFftGolden);
  all.expect(name, got, 1e-13);
}

/// The transform by its definition, for a vector of pairs.
Values direct_transform(const Values& x, bool inverse) {
  const size_t n = x.size() / 2;
  std::vector<std::complex<long double>> roots;
  for (size_t k = 0; k < n; ++k) {
    const long double angle =
        (inverse ? 2 : -2) * std::numbers::pi_v<long double> * static_cast<long double>(k) / n;
    roots.emplace_back(std::cos(angle), std::sin(angle));
  }
  Values y;
  for (size_t k = 0; k < n; ++k) {
    std::complex<long double> sum = 0;
    for (size_t j = 0, at = 0; j < n; ++j, at = (at + k) % n)
      sum += std::complex<long double>(x[2 * j], x[2 * j + 1]) * roots[at];
    y.push_back(static_cast<double>(sum.real()));
    y.push_back(static_cast<double>(sum.imag()));
  }
  return y;
}

/// The root of the mean squared error, relative to that of the values.
double relative_error(const Values& want, const Values& got) {
  EXPECT_EQ(want.size(), got.size());
  double error = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += (want[i] - got[i]) * (want[i] - got[i]);
    size += want[i] * want[i];
  }
  return size == 0 ? error : std::sqrt(error / size);
}

TEST(Fft, EveryLengthAgreesWithTheDefinition) {
  std::vector<int64_t> lengths;
  for (int64_t n = 1; n <= 140; ++n) lengths.push_back(n);
  // Powers of each radix, products of them, the largest prime that is a radix, primes that are not, and their
  // products.
  for (const int64_t n : {243, 256, 343, 512, 625, 720, 841, 961, 992, 997, 1009, 1024, 1331, 2 * 499, 2048})
    lengths.push_back(n);
  for (const int64_t n : lengths)
    for (const bool inverse : {false, true}) {
      const NDArray x = numbers({n, 2}, f64, static_cast<uint64_t>(n));
      const Values want = direct_transform(test::values(x), inverse);
      const NDArray y = inverse ? fft::ifft(x, {}, -1, fft::Norm::forward) : fft::fft(x);
      EXPECT_LE(relative_error(want, test::values(y)), 3e-16 * (1 + std::log2(static_cast<double>(n))))
          << n << (inverse ? " inverse" : "");
      const NDArray single = x.to(f32);
      EXPECT_LE(relative_error(
                    direct_transform(test::values(single), inverse),
                    test::values(inverse ? fft::ifft(single, {}, -1, fft::Norm::forward) : fft::fft(single))),
                4e-8)
          << n;
    }
}

TEST(Fft, RealTransformsAreHalvesOfComplexOnes) {
  for (int64_t n = 1; n <= 70; ++n) {
    const NDArray x = numbers({2, n}, f64), whole = fft::fft(fft::complex(x));
    const NDArray half = fft::rfft(x);
    ASSERT_EQ((Shape{2, n / 2 + 1, 2}), half.shape());
    EXPECT_LE(relative_error(test::values(whole.slice(1, Slice{0, n / 2 + 1})), test::values(half)), 1e-15);
    EXPECT_LE(relative_error(test::values(x), test::values(fft::irfft(half, n))), 2e-15) << n;
    EXPECT_EQ(0, fft::imag(half).select(1, 0).select(0, 0).item<double>());
  }
}

TEST(Fft, LongTransformsAreUndoneByTheirInverse) {
  for (const int64_t n : {1 << 20, 3 * 5 * 7 * 11 * 13 * 31, 1000003}) {
    const NDArray x = numbers({n, 2}, f64);
    EXPECT_LE(relative_error(test::values(x), test::values(fft::ifft(fft::fft(x)))), 3e-15) << n;
  }
}

TEST(Fft, EveryAxisAndLayoutGivesTheSameBits) {
  const NDArray x = numbers({3, 20, 7, 2}, f64);
  for (int64_t axis = -3; axis < 3; ++axis) {
    const NDArray want = fft::fft(x, {}, axis);
    const int64_t at = axis < 0 ? axis + 3 : axis;
    for (const NDArray& view : test::layouts(x)) {
      EXPECT_EQ(test::values(want), test::values(fft::fft(view, {}, axis)));
      const NDArray moved = fft::fft(view.move_axis(at, 2).to_contiguous(), {}, -1).move_axis(2, at);
      EXPECT_EQ(test::values(want), test::values(moved));
    }
    for (const NDArray& view : test::layouts(fft::real(x)))
      EXPECT_EQ(test::values(fft::rfft(fft::real(x), {}, axis)), test::values(fft::rfft(view, {}, axis)));
  }
}

TEST(Fft, AgreesWithNumpy) {
  const NDArray z = formula_numbers({3, 4, 5, 2}), x = formula_numbers({3, 4, 6});
  const std::pair<const char*, fft::Norm> norms[] = {
      {"backward", fft::Norm::backward}, {"forward", fft::Norm::forward}, {"ortho", fft::Norm::ortho}};
  for (const auto& [name, norm] : norms) {
    const std::string end = std::string("/") + name;
    expect_fft("fft" + end, fft::fft(z, {}, -1, norm));
    expect_fft("ifft" + end, fft::ifft(z, {}, 1, norm));
    expect_fft("rfft" + end, fft::rfft(x, {}, -1, norm));
    expect_fft("irfft" + end, fft::irfft(z, {}, -1, norm));
    expect_fft("fftn" + end, fft::fftn(z, {}, {}, norm));
    expect_fft("irfftn" + end, fft::irfftn(z, {}, {}, norm));
  }
  expect_fft("fft/longer", fft::fft(z, 7, 1));
  expect_fft("fft/shorter", fft::fft(z, 2, 0));
  expect_fft("rfft/longer", fft::rfft(x, 9, 1));
  expect_fft("irfft/odd", fft::irfft(z, 7));
  expect_fft("irfft/shorter", fft::irfft(z, 4));
  expect_fft("fft2", fft::fft2(z));
  expect_fft("ifft2", fft::ifft2(z, {}, {0, 2}));
  expect_fft("rfft2", fft::rfft2(x, {5, 4}));
  expect_fft("irfft2", fft::irfft2(z));
  expect_fft("rfftn", fft::rfftn(x, {2, 8}, {2, 0}));
  expect_fft("ifftn", fft::ifftn(z, {3, 7}, {1, 2}));
  for (const int64_t n : {1, 2, 5, 8}) {
    expect_fft("fftfreq/" + std::to_string(n), fft::fftfreq(n, 0.25, f64));
    expect_fft("rfftfreq/" + std::to_string(n), fft::rfftfreq(n, 0.25, f64));
  }
  expect_fft("fftshift", fft::fftshift(x, {0, 1}));
  expect_fft("ifftshift", fft::ifftshift(x, {0, 1}));
  expect_fft("angle", fft::angle(z));
}

TEST(Fft, ConvolutionsWindowsAndShortTimeTransforms) {
  const NDArray x = formula_numbers({3, 4, 6}), kernel = formula_numbers({1, 1, 3});
  for (const char* mode : {"full", "same", "valid"})
    expect_fft(std::string("convolve/") + mode, fft::convolve(x, kernel, mode));
  for (const int64_t n : {1, 2, 7, 8}) {
    const std::string end = "/" + std::to_string(n);
    expect_fft("hann" + end, fft::hann_window(n, false, f64));
    expect_fft("hamming" + end, fft::hamming_window(n, false, f64));
    expect_fft("blackman" + end, fft::blackman_window(n, false, f64));
    expect_fft("hann/periodic" + end, fft::hann_window(n, true, f64));
  }
  const NDArray signal = formula_numbers({2, 40}), window = fft::hann_window(8, true, f64);
  const std::pair<const char*, fft::StftOptions> cases[] = {
      {"plain", {.hop = 3, .window = window}},
      {"normalized", {.window = window, .normalized = true}},
      {"edges", {.hop = 8, .center = false}}};
  for (const auto& [name, options] : cases) {
    const NDArray y = fft::stft(signal, 8, options);
    expect_fft(std::string("stft/") + name, y);
    const NDArray changed = y * fft::absolute(y).expand_dims(-1);
    expect_fft(std::string("istft/") + name, fft::istft(changed, 8, options));
  }
  // What was not changed comes back.
  const NDArray back = fft::istft(fft::stft(signal, 8, {.window = window}), 8, {.window = window}, 37);
  EXPECT_LE(relative_error(test::values(signal.slice(-1, Slice{0, 37})), test::values(back)), 1e-15);
}

TEST(Fft, ComplexArithmeticIsThatOfTheLanguage) {
  const NDArray a = numbers({3, 1, 2}, f64), b = numbers({4, 2}, f64, 2), product = fft::multiply(a, b);
  ASSERT_EQ((Shape{3, 4, 2}), product.shape());
  const auto at = [](const NDArray& z) {
    return std::complex<double>(fft::real(z).item<double>(), fft::imag(z).item<double>());
  };
  for (int64_t i = 0; i < 3; ++i)
    for (int64_t j = 0; j < 4; ++j) {
      const NDArray x = a[{i, 0}], y = b[j], z = product[{i, j}];
      EXPECT_LE(std::abs(at(x) * at(y) - at(z)), 1e-14);
      EXPECT_EQ(std::conj(at(x)), at(fft::conj(x)));
      EXPECT_NEAR(std::abs(at(x)), fft::absolute(x).item<double>(), 1e-15);
      EXPECT_NEAR(std::arg(at(x)), fft::angle(x).item<double>(), 1e-15);
    }
  EXPECT_EQ(f64, fft::complex(ones({2}), ones({2}, f64)).dtype());
}

TEST(Fft, ErrorsNameWhatCame) {
  const auto message = [](const std::function<void()>& f) { return error_of<InvalidArgument>(f); };
  EXPECT_TRUE(contains(message([] { fft::fft(ones({3, 3})); }), "expected complex numbers (.., 2)"));
  EXPECT_TRUE(contains(message([] { fft::fft(ones({3, 3})); }), "got shape (3, 3)"));
  EXPECT_TRUE(contains(message([] { fft::fft2(ones({3, 3})); }), "fft::complex(x)"));
  for (const DType dtype : {f16, i32})
    EXPECT_TRUE(contains(message([&] { fft::rfft(ones({3}, dtype)); }), "[rfft] expected elements of type"));
  EXPECT_TRUE(contains(message([] { fft::fft(ones({3, 2}), {}, 1); }), "[fft] expected an axis"));
  EXPECT_TRUE(contains(message([] { fft::rfft(ones({0})); }), "length of at least 1, got 0"));
  EXPECT_TRUE(contains(message([] { fft::rfft(ones({3}), -1); }), "length of at least 1, got -1"));
  EXPECT_TRUE(contains(message([] { fft::irfft(ones({1, 2})); }), "got 0"));
  EXPECT_TRUE(contains(message([] { fft::fftn(ones({3, 3, 2}), {2}, {0, 1}); }), "one size for each axis"));
  EXPECT_TRUE(contains(message([] { fft::fft2(ones({3, 3, 2}), {}, {0, -2}); }), "different axes"));
  EXPECT_TRUE(contains(message([] { fft::convolve(ones({3}), ones({2}), "some"); }), "got \"some\""));
  EXPECT_TRUE(contains(message([] { fft::convolve(ones({3}), ones({0})); }), "(0,)"));
  EXPECT_TRUE(contains(message([] { fft::stft(ones({9}), 8, {.window = ones({4})}); }), "got (4,)"));
  EXPECT_TRUE(contains(message([] { fft::stft(ones({3}), 8, {.center = false}); }), "[stft]"));
  EXPECT_TRUE(contains(message([] { fft::istft(ones({4, 3, 2}), 8); }), "[istft]"));
  EXPECT_TRUE(contains(message([] { fft::fftfreq(0); }), "[fftfreq]"));
  EXPECT_EQ((Shape{0, 3, 2}), fft::rfft(zeros({0, 5})).shape());
}

TEST(Fft, NansStayInTheirLine) {
  NDArray x = numbers({2, 37}, f64);
  x[{1, 3}] = test::kNan;
  const NDArray y = fft::rfft(x);
  EXPECT_TRUE(all(isfinite(y[0])).item<bool>());
  EXPECT_TRUE(all(isnan(fft::real(y)[1])).item<bool>());
}

}  // namespace
}  // namespace mx
