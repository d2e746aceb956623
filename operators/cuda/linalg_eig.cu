// Eigenvalues and eigenvectors of stacks of matrices without symmetry: operators/kernels/linalg.h. A block
// computes one matrix, in double: reflections make it a Hessenberg matrix, double steps of the QR iteration a
// triangle with blocks of two rows where eigenvalues are complex, and each thread finds eigenvectors of it by
// substitution (Golub and van Loan, "Matrix Computations", 7.4 to 7.6).
//
// A kernel cannot throw: if the iteration does not converge, where the CPU throws, the results are NaN.
#include <cmath>

#include "operators/cuda/linalg.cuh"
#include "operators/cuda/operand.h"
#include "operators/cuda_kernels.h"

namespace mx::cuda {
namespace {

constexpr double kEigEpsilon = 0x1p-52;
constexpr int kMostEigSteps = 60;  // for one eigenvalue

struct Complex {
  double re, im;
};
__device__ inline Complex operator+(Complex a, Complex b) { return {a.re + b.re, a.im + b.im}; }
__device__ inline Complex operator-(Complex a, Complex b) { return {a.re - b.re, a.im - b.im}; }
__device__ inline Complex operator*(Complex a, Complex b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
__device__ inline Complex operator*(double a, Complex b) { return {a * b.re, a * b.im}; }
__device__ inline double size_of_number(Complex a) { return std::hypot(a.re, a.im); }
/// The quotient, without overflow of squares.
__device__ inline Complex operator/(Complex a, Complex b) {
  if (std::fabs(b.re) >= std::fabs(b.im)) {
    const double ratio = b.im / b.re, divisor = b.re + ratio * b.im;
    return {(a.re + ratio * a.im) / divisor, (a.im - ratio * a.re) / divisor};
  }
  const double ratio = b.re / b.im, divisor = b.im + ratio * b.re;
  return {(ratio * a.re + a.im) / divisor, (ratio * a.im - a.re) / divisor};
}

/// The reflection x - scale * v (v' x), which turns some vector into a multiple of its first element.
struct Reflection {
  double v[3];
  double scale;  ///< 0: none is needed
  double first;  ///< the first element of the result

  __device__ Reflection(double x, double y, double z) : v{x, y, z}, scale(0), first(x) {
    const double largest = Larger()(Larger()(std::fabs(x), std::fabs(y)), std::fabs(z));
    if (!(Larger()(std::fabs(y), std::fabs(z)) > 0)) return;
    for (double& number : v) number /= largest;
    const double length = sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
    const double target = v[0] > 0 ? -length : length;
    first = target * largest;
    v[0] -= target;
    scale = 2 / (v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
  }
  /// Reflects `count` numbers that are `step` apart.
  __device__ void apply(double* x, int64_t step, int count) const {
    double sum = 0;
    for (int i = 0; i < count; ++i) sum += v[i] * x[i * step];
    for (int i = 0; i < count; ++i) x[i * step] -= scale * sum * v[i];
  }
};

/// a (n, n) becomes a Hessenberg matrix q' a q; z becomes q. `v`: n numbers of memory.
__device__ inline void reduce_to_hessenberg(double* a, double* z, double* v, int64_t n) {
  for (int64_t at = threadIdx.x; at < n * n; at += kBlock) z[at] = at / n == at % n ? 1 : 0;
  for (int64_t k = 0; k + 2 < n; ++k) {
    barrier();
    double largest = 0, below = 0;
    for (int64_t i = k + 1 + threadIdx.x; i < n; i += kBlock) {
      largest = Larger()(largest, std::fabs(a[i * n + k]));
      if (i > k + 1) below = Larger()(below, std::fabs(a[i * n + k]));
    }
    largest = Group<kBlock>::all(largest, Larger());
    below = Group<kBlock>::all(below, Larger());
    if (below == 0) continue;
    double squares = 0;
    for (int64_t i = k + 1 + threadIdx.x; i < n; i += kBlock) {
      v[i] = a[i * n + k] / largest;
      squares += v[i] * v[i];
    }
    squares = Group<kBlock>::all(squares, Add());
    barrier();
    const double lead = v[k + 1], target = lead > 0 ? -sqrt(squares) : sqrt(squares);
    const double scale = 1 / (squares - lead * target);  // 2 / (v' v) for the v that follows
    barrier();
    if (threadIdx.x == 0) v[k + 1] = lead - target;
    barrier();
    for (int64_t j = k + threadIdx.x; j < n; j += kBlock) {
      double sum = 0;
      for (int64_t i = k + 1; i < n; ++i) sum += v[i] * a[i * n + j];
      for (int64_t i = k + 1; i < n; ++i)
        a[i * n + j] = j > k ? a[i * n + j] - scale * sum * v[i] : i == k + 1 ? target * largest : 0;
    }
    barrier();
    for (int64_t at = threadIdx.x; at < 2 * n; at += kBlock) {
      double* const row = at < n ? a + at * n : z + (at - n) * n;
      double sum = 0;
      for (int64_t j = k + 1; j < n; ++j) sum += row[j] * v[j];
      for (int64_t j = k + 1; j < n; ++j) row[j] -= scale * sum * v[j];
    }
  }
  barrier();
}

/// One double step of the QR iteration on rows low to high. The shifts are the eigenvalues of a matrix with
/// this trace and determinant.
__device__ inline void step_of_qr(double* h, double* z, int64_t n, int64_t low, int64_t high, double trace,
                                  double determinant) {
  for (int64_t k = low; k < high; ++k) {
    const int count = k + 2 <= high ? 3 : 2;
    double x, y, w;
    if (k == low) {
      const double *const first = h + k * n + k, *const second = first + n;
      x = first[0] * (first[0] - trace) + determinant + first[1] * second[0];
      y = second[0] * (first[0] + second[1] - trace);
      w = second[0] * second[n + 1];
    } else {
      x = h[k * n + k - 1];
      y = h[(k + 1) * n + k - 1];
      w = count == 3 ? h[(k + 2) * n + k - 1] : 0;
    }
    const Reflection reflection(x, y, w);
    barrier();
    if (reflection.scale == 0) continue;
    const int64_t begin = k > low ? k - 1 : k;
    for (int64_t j = begin + threadIdx.x; j < n; j += kBlock) {
      double* const column = h + k * n + j;
      reflection.apply(column, n, count);
      if (j >= k) continue;
      column[0] = reflection.first;
      for (int i = 1; i < count; ++i) column[i * n] = 0;
    }
    barrier();
    const int64_t rows = k + 4 < high + 1 ? k + 4 : high + 1;
    for (int64_t at = threadIdx.x; at < rows + n; at += kBlock)
      reflection.apply((at < rows ? h + at * n : z + (at - rows) * n) + k, 1, count);
    barrier();
  }
}

/// Rows k and k + 1 have their eigenvalues in a block of their own. If these are real, the block becomes a
/// triangle.
__device__ inline void finish_pair(double* h, double* z, Complex* values, int64_t n, int64_t k) {
  double *const first = h + k * n + k, *const second = first + n;
  const double a = first[0], b = first[1], c = second[0], d = second[1];
  const double half = (a - d) / 2, square = half * half + b * c;
  barrier();
  if (square < 0) {
    if (threadIdx.x == 0) {
      values[k] = {d + half, sqrt(-square)};
      values[k + 1] = {d + half, -sqrt(-square)};
    }
    barrier();
    return;
  }
  const double gap = half + (half < 0 ? -sqrt(square) : sqrt(square)), length = std::hypot(gap, c);
  const double cosine = gap / length, sine = c / length;
  const auto rotate = [&](double& x, double& y) {
    const double turned = cosine * x + sine * y;
    y = cosine * y - sine * x;
    x = turned;
  };
  for (int64_t j = k + threadIdx.x; j < n; j += kBlock) rotate(h[k * n + j], h[(k + 1) * n + j]);
  barrier();
  const int64_t rows = k + 2;
  for (int64_t at = threadIdx.x; at < rows + n; at += kBlock) {
    double* const row = (at < rows ? h + at * n : z + (at - rows) * n) + k;
    rotate(row[0], row[1]);
  }
  barrier();
  if (threadIdx.x == 0) {
    second[0] = 0;
    values[k] = {first[0], 0};
    values[k + 1] = {second[1], 0};
  }
  barrier();
}

/// h (n, n), a Hessenberg matrix, becomes a triangle with blocks of two rows; z (n, n) is turned with it.
/// Returns whether the iteration has converged.
__device__ inline bool iterate_qr(double* h, double* z, Complex* values, int64_t n, double norm) {
  int steps = 0;
  for (int64_t high = n - 1; high >= 0;) {
    int64_t low = high;
    for (; low > 0; --low) {
      const double beside = std::fabs(h[(low - 1) * n + low - 1]) + std::fabs(h[low * n + low]);
      if (std::fabs(h[low * n + low - 1]) <= kEigEpsilon * (beside == 0 ? norm : beside)) break;
    }
    barrier();
    if (threadIdx.x == 0 && low > 0) h[low * n + low - 1] = 0;
    barrier();
    if (low + 1 >= high) {
      if (low == high) {
        if (threadIdx.x == 0) values[high] = {h[high * n + high], 0};
      } else {
        finish_pair(h, z, values, n, low);
      }
      high = low - 1;
      steps = 0;
      continue;
    }
    if (++steps > kMostEigSteps) return false;
    const double *const last = h + high * n + high, *const before = last - n;
    double trace = before[-1] + last[0], determinant = before[-1] * last[0] - before[0] * last[-1];
    if (steps % 10 == 0) {  // the usual shifts go round in a circle
      const double size = std::fabs(last[-1]) + std::fabs(before[-2]);
      trace = 1.5 * size;
      determinant = size * size;
    }
    step_of_qr(h, z, n, low, high, trace, determinant);
  }
  barrier();
  return true;
}

/// x = an eigenvector of the triangle h with blocks, for value k, which has no negative imaginary part.
/// Returns the number of its elements that may differ from 0.
__device__ inline int64_t eigenvector_of_triangle(const double* h, const Complex* values, int64_t n,
                                                  int64_t k, double norm, Complex* x) {
  const Complex value = values[k];
  const double least = kEigEpsilon * norm;
  int64_t count = k + 1;
  x[k] = {1, 0};
  if (value.im != 0) {
    const double *const first = h + k * n + k, *const second = first + n;
    count = k + 2;
    // From the row whose element off the diagonal is larger.
    if (std::fabs(first[1]) >= std::fabs(second[0])) {
      x[k + 1] = (1 / first[1]) * Complex{value.re - first[0], value.im};
    } else {
      x[k + 1] = {1, 0};
      x[k] = (1 / second[0]) * Complex{value.re - second[1], value.im};
    }
  }
  const auto rest = [&](int64_t i, int64_t begin) {
    Complex sum{0, 0};
    for (int64_t j = begin; j < count; ++j) sum = sum - h[i * n + j] * x[j];
    return sum;
  };
  for (int64_t i = k - 1; i >= 0; --i) {
    const double* const own = h + i * n + i;
    Complex diagonal{own[0] - value.re, -value.im};
    if (i > 0 && own[-1] != 0) {
      const double* const above = own - n;
      const Complex corner{above[-1] - value.re, -value.im}, right = rest(i - 1, i + 1), low = rest(i, i + 1);
      Complex determinant = corner * diagonal - Complex{above[0] * own[-1], 0};
      if (size_of_number(determinant) < least * least) determinant = {least * least, 0};
      x[i] = (corner * low - own[-1] * right) / determinant;
      x[i - 1] = (diagonal * right - above[0] * low) / determinant;
      --i;
    } else {
      if (size_of_number(diagonal) < least) diagonal = {least, 0};
      x[i] = rest(i, i + 1) / diagonal;
    }
    const double size = size_of_number(x[i]);
    if (size > 1e100)
      for (int64_t j = i; j < count; ++j) x[j] = (1 / size) * x[j];
  }
  return count;
}

/// The place of value k in the order of real, then of imaginary parts.
__device__ inline int64_t place_of_value(const Complex* values, int64_t n, int64_t k) {
  const Complex own = values[k];
  int64_t place = 0;
  for (int64_t j = 0; j < n; ++j) {
    const Complex other = values[j];
    const bool same = other.re == own.re && other.im == own.im;
    if (other.re < own.re || (other.re == own.re && other.im < own.im) || (same && j < k)) ++place;
  }
  return place;
}

/// Writes v = z x, of norm 1 and turned such that the leading element is real and positive, as a column, and
/// its conjugate as another one unless `conjugate` is negative.
__device__ inline void store_column(const double* z, const Complex* x, int64_t count, int64_t n, Complex* v,
                                    Complex* to, int64_t column, int64_t conjugate) {
  double largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    Complex sum{0, 0};
    for (int64_t j = 0; j < count; ++j) sum = sum + z[i * n + j] * x[j];
    v[i] = sum;
    largest = Larger()(largest, size_of_number(sum));
  }
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) {
    v[i] = (1 / largest) * v[i];
    squares += v[i].re * v[i].re + v[i].im * v[i].im;
  }
  int64_t lead = 0;
  while (lead + 1 < n && size_of_number(v[lead]) < 0.5) ++lead;
  const double size = size_of_number(v[lead]), length = sqrt(squares);
  const Complex turn{v[lead].re / size / length, -v[lead].im / size / length};
  for (int64_t i = 0; i < n; ++i) {
    const Complex number = i == lead ? Complex{size / length, 0} : v[i] * turn;
    to[i * n + column] = number;
    if (conjugate >= 0) to[i * n + conjugate] = {number.re, -number.im};
  }
}

struct EigMemory {
  double *turned, *reflection;  // for each matrix n * n numbers, and n
  Complex *values, *x, *v;      // n, n * n, n * n
};

/// `ws` gets the eigenvalues (n, 2). `vs`, unless null, gets the eigenvectors (n, n, 2).
__global__ void __launch_bounds__(kBlock)
    find_eigenvalues(double* matrices, EigMemory memory, Complex* ws, Complex* vs, int64_t n) {
  const int64_t item = blockIdx.x, size = n * n;
  double *const a = matrices + item * size, *const z = memory.turned + item * size;
  Complex *const values = memory.values + item * n, *const w = ws + item * n;
  double norm = 0, unusual = 0;
  for (int64_t at = threadIdx.x; at < size; at += kBlock) {
    norm = Larger()(norm, std::fabs(a[at]));
    if (!std::isfinite(a[at])) unusual = 1;
  }
  norm = Group<kBlock>::all(norm, Larger());
  unusual = Group<kBlock>::all(unusual, Larger());
  bool converged = unusual == 0;
  if (converged) {
    reduce_to_hessenberg(a, z, memory.reflection + item * n, n);
    converged = iterate_qr(a, z, values, n, norm);
  }
  if (!converged) {
    const Complex none{static_cast<double>(NAN), static_cast<double>(NAN)};
    for (int64_t k = threadIdx.x; k < n; k += kBlock) w[k] = none;
    for (int64_t at = threadIdx.x; vs != nullptr && at < size; at += kBlock) vs[item * size + at] = none;
    return;
  }
  for (int64_t k = threadIdx.x; k < n; k += kBlock) {
    const int64_t place = place_of_value(values, n, k);
    w[place] = values[k];
    if (vs == nullptr || values[k].im < 0) continue;  // the one before has written this one's vector
    Complex* const x = memory.x + item * size + k * n;
    const int64_t count = eigenvector_of_triangle(a, values, n, k, norm == 0 ? 1 : norm, x);
    const int64_t conjugate = values[k].im > 0 ? place_of_value(values, n, k + 1) : -1;
    store_column(z, x, count, n, memory.v + item * size + k * n, vs + item * size, place, conjugate);
  }
}

void run_eig(const KernelArgs& args, const Tensor* vectors) {
  const Tensor& x = args.in[0];
  if (x.numel() == 0) return;
  const int64_t n = x.shape[x.rank() - 1], count = matrices_of(x), room = vectors != nullptr ? n : 0;
  const DType type = DType::f64;
  const Operand a(args, x, type, true), turned(args, type, {count, n, n}), reflection(args, type, {count, n}),
      values(args, type, {count, n, 2}), solved(args, type, {count, room, room, 2}),
      products(args, type, {count, room, room, 2});
  const Result w(args, args.out[0], type), v(args, vectors != nullptr ? *vectors : args.out[0], type);
  const EigMemory memory{turned->as<double>(), reflection->as<double>(), values->as<Complex>(),
                         solved->as<Complex>(), products->as<Complex>()};
  launch(stream_of(args), whole_grid(count), kBlock, 0, find_eigenvalues, a->as<double>(), memory,
         w->as<Complex>(), vectors != nullptr ? v->as<Complex>() : nullptr, n);
  w.store(args);
  if (vectors != nullptr) v.store(args);
}

}  // namespace

void linalg_eig(const KernelArgs& args) { run_eig(args, &args.out[1]); }
void linalg_eigvals(const KernelArgs& args) { run_eig(args, nullptr); }

}  // namespace mx::cuda
