// Gradients of functions that call transforms. Those of the transforms themselves are in the tests of all
// operators.
#include <gtest/gtest.h>

#include <vector>

#include "executor/autograd/autograd.h"
#include "operators/operators.h"
#include "tests/support/numeric_gradient.h"

namespace mx {
namespace {

using FftArrays = std::vector<NDArray>;

TEST(FftGradients, OfFunctionsOfTransformsAgreeWithFiniteDifferences) {
  const auto check = [](const char* name, NDArray (*f)(const FftArrays&), const FftArrays& arguments) {
    SCOPED_TRACE(name);
    const NDArray weight = test::some(f(arguments).shape(), 9);
    test::expect_gradients([&](const FftArrays& a) { return sum(f(a) * weight); }, arguments, 1e-6);
  };
  const NDArray x = test::some({2, 6}, 1), z = test::some({2, 5, 2}, 2);
  check("padded", [](const FftArrays& a) { return fft::fft(a[0], 7); }, {z});
  check("cut off", [](const FftArrays& a) { return fft::irfft(a[0], 5); }, {z});
  check("several axes", [](const FftArrays& a) { return fft::rfft2(a[0], {3, 4}); }, {x});
  check("several axes back", [](const FftArrays& a) { return fft::irfftn(a[0]); }, {z});
  check("spectrum", [](const FftArrays& a) { return square(fft::absolute(fft::rfft(a[0]))); }, {x});
  check("convolution", [](const FftArrays& a) { return fft::convolve(a[0], a[1], "same"); },
        {x, test::some({3}, 3)});
  check("short time",
        [](const FftArrays& a) {
          return fft::stft(a[0], 4, {.hop = 2, .window = fft::hann_window(4, true, f64)});
        },
        {x});
  check("short time back",
        [](const FftArrays& a) {
          return fft::istft(a[0], 4, {.hop = 1, .window = fft::hann_window(4, true, f64)});
        },
        {test::some({3, 5, 2}, 4)});
  check("products", [](const FftArrays& a) { return fft::angle(fft::multiply(a[0], fft::conj(a[0]) + 1)); },
        {z});
}

}  // namespace
}  // namespace mx
