// Lines that are transformed together have the bits that each has alone, with every instruction set.
#include "operators/kernels/fourier.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/support/instruction_sets.h"
#include "tests/support/thread_limit.h"

namespace mx {
namespace {

template <class T>
Tensor tensor_of(std::vector<T>& data, const Shape& shape) {
  return {data.data(), dtype_of<T>, shape, contiguous_strides(shape)};
}

template <class T>
std::vector<T> waves(int64_t count) {
  std::vector<T> result(static_cast<size_t>(count));
  for (size_t i = 0; i < result.size(); ++i)
    result[i] = static_cast<T>(std::sin(1.7 * static_cast<double>(i * i % 1009)));
  return result;
}

template <class T>
struct Transforms {
  std::vector<T> of_real, to_real, complex, inverse;
  bool operator==(const Transforms&) const = default;
};

/// All transforms of `lines` lines of n numbers.
template <class T>
Transforms<T> transforms(const std::vector<T>& real, const std::vector<T>& pairs, int64_t lines, int64_t n) {
  std::vector<T> x = real, z = pairs;
  const int64_t half = n / 2 + 1;
  Transforms<T> r;
  r.of_real.resize(static_cast<size_t>(lines * half * 2));
  r.to_real.resize(static_cast<size_t>(lines * n));
  r.complex.resize(static_cast<size_t>(lines * n * 2));
  r.inverse = r.complex;
  kernels::fourier_of_real(tensor_of(r.of_real, {lines, half, 2}), tensor_of(x, {lines, n}), 1, 0.5);
  kernels::fourier(tensor_of(r.complex, {lines, n, 2}), tensor_of(z, {lines, n, 2}), 1, false, 0.5);
  kernels::fourier(tensor_of(r.inverse, {lines, n, 2}), tensor_of(z, {lines, n, 2}), 1, true, 2);
  std::vector<T> spectrum(z.begin(), z.begin() + lines * half * 2);
  kernels::fourier_to_real(tensor_of(r.to_real, {lines, n}), tensor_of(spectrum, {lines, half, 2}), 1, 2);
  return r;
}

/// The same, one line after the other.
template <class T>
Transforms<T> transforms_alone(const std::vector<T>& real, const std::vector<T>& pairs, int64_t lines,
                               int64_t n) {
  const int64_t half = n / 2 + 1;
  Transforms<T> all;
  const auto append = [](std::vector<T>& to, const std::vector<T>& more) {
    to.insert(to.end(), more.begin(), more.end());
  };
  for (int64_t i = 0; i < lines; ++i) {
    const std::vector<T> x(real.begin() + i * n, real.begin() + (i + 1) * n),
        z(pairs.begin() + i * n * 2, pairs.begin() + (i + 1) * n * 2);
    const Transforms<T> one = transforms(x, z, 1, n);
    append(all.of_real, one.of_real);
    append(all.complex, one.complex);
    append(all.inverse, one.inverse);
    std::vector<T> spectrum(pairs.begin() + i * half * 2, pairs.begin() + (i + 1) * half * 2),
        line(static_cast<size_t>(n));
    kernels::fourier_to_real(tensor_of(line, {1, n}), tensor_of(spectrum, {1, half, 2}), 1, 2);
    append(all.to_real, line);
  }
  return all;
}

template <class T>
void check_lines(int64_t lines, int64_t n) {
  // n + 2, because the spectra of `lines` lines of one number have more pairs than the lines have.
  const std::vector<T> real = waves<T>(lines * n), pairs = waves<T>(lines * (n + 2) * 2);
  const Transforms<T> want = transforms_alone(real, pairs, lines, n);
  test::with_every_instruction_set(
      [&](int64_t) { EXPECT_TRUE(want == transforms(real, pairs, lines, n)) << lines << " lines of " << n; });
}

TEST(Fourier, LinesTogetherHaveTheBitsOfEachAlone) {
  for (const int64_t n :
       {1, 2, 3, 4, 6, 8, 10, 15, 16, 30, 62, 64, 100, 126, 128, 130, 254, 256, 258, 394, 1000})
    for (const int64_t lines : {7, 8, 19}) {
      check_lines<float>(lines, n);
      check_lines<double>(lines, n);
    }
}

TEST(Fourier, HasTheSameBitsAtAnyNumberOfThreads) {
  const std::vector<float> real = waves<float>(100 * 512), pairs = waves<float>(100 * 514 * 2);
  Transforms<float> one, four;
  test::with_threads(1, [&] { one = transforms(real, pairs, 100, 512); });
  test::with_threads(4, [&] { four = transforms(real, pairs, 100, 512); });
  EXPECT_TRUE(one == four);
}

}  // namespace
}  // namespace mx
