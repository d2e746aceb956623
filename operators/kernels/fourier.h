// The discrete Fourier transform of any length, on the CPU.
//
// A length is divided into factors 4, 2, 3, 5 and primes up to 31, by the algorithm of Stockham, which needs
// no reordering (van Loan, "Computational Frameworks for the Fast Fourier Transform", SIAM 1992, 1.7). A
// length with a larger prime factor is computed as a convolution of a power of two (Bluestein, IEEE Trans.
// Audio Electroacoust. 18:4, 1970). So the time is proportional to n log n for every n.
//
// All is computed in f64, also for f32, and rounded once. The roots of unity are computed in extended
// precision; the relative error of a transform, as root mean square, is about 1e-16 times log2(n).
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "ndarray/tensor.h"

namespace mx::kernels {

/// Leaves new numbers of a list uninitialized, which would otherwise be set to 0 before they are set.
struct UninitializedNumbers : std::allocator<double> {
  template <class U>
  struct rebind {
    using other = UninitializedNumbers;
  };
  template <class U>
  void construct(U* at) {
    ::new (static_cast<void*>(at)) U;
  }
  template <class U, class... Args>
  void construct(U* at, Args&&... args) {
    ::new (static_cast<void*>(at)) U(std::forward<Args>(args)...);
  }
};

/// Complex numbers as two lists.
struct ComplexLists {
  std::vector<double, UninitializedNumbers> re, im;
  /// New numbers have any value.
  void resize(int64_t n) {
    re.resize(static_cast<size_t>(n));
    im.resize(static_cast<size_t>(n));
  }
};

/// What transforms of one length need. Immutable, so several threads may use it.
class FourierPlan {
 public:
  /// Precondition: n > 0.
  explicit FourierPlan(int64_t n);

  /// Memory of one thread for `lanes` transforms at once. data: number k of transform l is at k * lanes + l.
  struct Work {
    int64_t lanes = 1;
    ComplexLists data, other, long_data, long_other;
  };
  void prepare(Work& work, int64_t lanes) const;
  /// Replaces work.data by y[k] = sum of x[j] exp(-2 pi i j k / n). The bits of a transform do not depend on
  /// the others.
  void run(Work& work) const;
  int64_t size() const { return n_; }
  /// exp(-pi i k / n) for k <= n, for real transforms of 2 n numbers.
  const ComplexLists& half_roots() const { return half_roots_; }

 private:
  void run_factors(ComplexLists& data, ComplexLists& other, int64_t lanes) const;
  void run_convolution(Work& work) const;

  int64_t n_;
  std::vector<int64_t> factors_;             // empty for a convolution
  ComplexLists roots_, half_roots_;          // roots_: exp(-2 pi i k / n)
  std::shared_ptr<const FourierPlan> long_;  // the plan of the convolution
  ComplexLists chirp_, chirp_transform_;
};

/// Returns the plan for a length. The latest ones are kept. Thread-safe.
std::shared_ptr<const FourierPlan> fourier_plan(int64_t n);

/// Transforms along one axis, for f32 or f64 and any strides. A tensor of complex numbers has a last
/// dimension of size 2, which `axis` does not count. Results are multiplied by `scale`; `inverse`: with the
/// other sign of the exponent. The bits do not depend on strides and threads. y must not overlap x, and sizes
/// along the axis must be positive.

/// y and x: complex, of one shape.
void fourier(const Tensor& y, const Tensor& x, int axis, bool inverse, double scale);
/// x: real; y: complex, the first n / 2 + 1 numbers along the axis. The others are their conjugates.
void fourier_of_real(const Tensor& y, const Tensor& x, int axis, double scale);
/// The inverse of the latter. y: real, n along the axis; x: complex, n / 2 + 1 along it. The imaginary parts
/// of the first number, and for an even n of the last one, are not read.
void fourier_to_real(const Tensor& y, const Tensor& x, int axis, double scale);

}  // namespace mx::kernels
