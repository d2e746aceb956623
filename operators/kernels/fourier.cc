#include "operators/kernels/fourier.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <list>
#include <mutex>
#include <numbers>
#include <utility>

#include "operators/kernels/matrix_stack.h"

namespace mx::kernels {
namespace {

constexpr int64_t kLargestPrime = 31;
constexpr size_t kKeptPlans = 16;
// Longer plans are not kept, so that they do not hold memory.
constexpr int64_t kLongestKept = 1 << 20;

using Number = std::complex<long double>;

/// exp(-pi i k / half)
Number root_of(int64_t k, int64_t half) {
  const long double angle =
      -std::numbers::pi_v<long double> * static_cast<long double>(k) / static_cast<long double>(half);
  return {std::cos(angle), std::sin(angle)};
}

/// exp(-2 pi i k / n) for all k < n: products of two tables of about sqrt(n) numbers in long double.
void fill_roots(ComplexLists& roots, int64_t n) {
  roots.resize(n);
  const auto step = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(n))));
  std::vector<Number> fine;
  for (int64_t k = 0; k < step; ++k) fine.push_back(root_of(2 * k, n));
  for (int64_t begin = 0; begin < n; begin += step) {
    const Number coarse = root_of(2 * begin, n);
    for (int64_t k = begin; k < std::min(n, begin + step); ++k) {
      const Number root = coarse * fine[static_cast<size_t>(k - begin)];
      roots.re[static_cast<size_t>(k)] = static_cast<double>(root.real());
      roots.im[static_cast<size_t>(k)] = static_cast<double>(root.imag());
    }
  }
}

/// The numbers of one stage. Element (r, q, k) of the input is at r + s (q + m k), that of the output at
/// r + s (p q + k), for r < s, q < m, k < p.
struct Stage {
  const double *xr, *xi;
  double *yr, *yi;
  int64_t s, m, p;
  const double *wr, *wi;  // the roots of unity of the whole length, n = s m p

  struct Root {
    double re, im;
  };
  Root root(int64_t k) const { return {wr[k], wi[k]}; }
};

void radix2(const Stage& t) {
  for (int64_t q = 0; q < t.m; ++q) {
    const auto [wr, wi] = t.root(q * t.s);
    const int64_t a = t.s * q, b = t.s * (q + t.m), y = t.s * 2 * q;
    for (int64_t r = 0; r < t.s; ++r) {
      const double ar = t.xr[a + r], ai = t.xi[a + r], br = t.xr[b + r], bi = t.xi[b + r];
      const double dr = ar - br, di = ai - bi;
      t.yr[y + r] = ar + br;
      t.yi[y + r] = ai + bi;
      t.yr[y + t.s + r] = dr * wr - di * wi;
      t.yi[y + t.s + r] = dr * wi + di * wr;
    }
  }
}

void radix4(const Stage& t) {
  for (int64_t q = 0; q < t.m; ++q) {
    const auto w1 = t.root(q * t.s), w2 = t.root(2 * q * t.s), w3 = t.root(3 * q * t.s);
    const int64_t x = t.s * q, step = t.s * t.m, y = t.s * 4 * q;
    for (int64_t r = 0; r < t.s; ++r) {
      const int64_t a = x + r, b = a + step, c = b + step, d = c + step;
      const double sr = t.xr[a] + t.xr[c], si = t.xi[a] + t.xi[c];
      const double tr = t.xr[a] - t.xr[c], ti = t.xi[a] - t.xi[c];
      const double ur = t.xr[b] + t.xr[d], ui = t.xi[b] + t.xi[d];
      // -i (b - d)
      const double vr = t.xi[b] - t.xi[d], vi = t.xr[d] - t.xr[b];
      const double r1 = tr + vr, i1 = ti + vi, r2 = sr - ur, i2 = si - ui, r3 = tr - vr, i3 = ti - vi;
      const int64_t o = y + r;
      t.yr[o] = sr + ur;
      t.yi[o] = si + ui;
      t.yr[o + t.s] = r1 * w1.re - i1 * w1.im;
      t.yi[o + t.s] = r1 * w1.im + i1 * w1.re;
      t.yr[o + 2 * t.s] = r2 * w2.re - i2 * w2.im;
      t.yi[o + 2 * t.s] = r2 * w2.im + i2 * w2.re;
      t.yr[o + 3 * t.s] = r3 * w3.re - i3 * w3.im;
      t.yi[o + 3 * t.s] = r3 * w3.im + i3 * w3.re;
    }
  }
}

/// Odd factors: the sums and differences of elements k and p - k are used twice.
void radix_odd(const Stage& t) {
  const int64_t p = t.p, half = p / 2, whole = t.s * t.m;
  double cosine[kLargestPrime], sine[kLargestPrime];
  for (int64_t k = 0; k < p; ++k) {
    cosine[k] = t.wr[k * whole];
    sine[k] = t.wi[k * whole];
  }
  for (int64_t q = 0; q < t.m; ++q) {
    Stage::Root w[kLargestPrime];
    for (int64_t j = 0; j < p; ++j) w[j] = t.root(q * j * t.s);
    for (int64_t r = 0; r < t.s; ++r) {
      const int64_t x = t.s * q + r, o = t.s * p * q + r;
      double plus_re[kLargestPrime], plus_im[kLargestPrime], minus_re[kLargestPrime], minus_im[kLargestPrime];
      const double first_re = t.xr[x], first_im = t.xi[x];
      double sum_re = first_re, sum_im = first_im;
      for (int64_t k = 1; k <= half; ++k) {
        const int64_t a = x + whole * k, b = x + whole * (p - k);
        plus_re[k] = t.xr[a] + t.xr[b];
        plus_im[k] = t.xi[a] + t.xi[b];
        minus_re[k] = t.xr[a] - t.xr[b];
        minus_im[k] = t.xi[a] - t.xi[b];
        sum_re += plus_re[k];
        sum_im += plus_im[k];
      }
      t.yr[o] = sum_re;
      t.yi[o] = sum_im;
      for (int64_t j = 1; j <= half; ++j) {
        double re = first_re, im = first_im, turned_re = 0, turned_im = 0;
        for (int64_t k = 1, at = j; k <= half; ++k, at = at + j < p ? at + j : at + j - p) {
          re += plus_re[k] * cosine[at];
          im += plus_im[k] * cosine[at];
          turned_re -= minus_im[k] * sine[at];
          turned_im += minus_re[k] * sine[at];
        }
        const double ar = re + turned_re, ai = im + turned_im, br = re - turned_re, bi = im - turned_im;
        const int64_t oa = o + t.s * j, ob = o + t.s * (p - j);
        t.yr[oa] = ar * w[j].re - ai * w[j].im;
        t.yi[oa] = ar * w[j].im + ai * w[j].re;
        t.yr[ob] = br * w[p - j].re - bi * w[p - j].im;
        t.yi[ob] = br * w[p - j].im + bi * w[p - j].re;
      }
    }
  }
}

std::vector<int64_t> factors_of(int64_t n) {
  std::vector<int64_t> factors;
  for (int64_t p = 4; p <= kLargestPrime && n > 1; p = p == 4 ? 2 : p == 2 ? 3 : p + 2)
    while (n % p == 0) {
      factors.push_back(p);
      n /= p;
    }
  if (n > 1) factors.clear();  // a larger prime is left
  return factors;
}

/// The lines of a tensor along an axis, without the dimension of complex parts.
struct Lines {
  Shape batch;
  Strides batch_strides;
  int64_t count, size, step, part;
  void* data;

  Lines(const Tensor& x, int axis, bool is_complex) : data(x.data) {
    batch = x.shape;
    batch_strides = x.strides;
    part = is_complex ? x.strides[-1] : 0;
    if (is_complex) {
      batch.resize(x.rank() - 1);
      batch_strides.resize(x.rank() - 1);
    }
    size = batch[axis];
    step = batch_strides[axis];
    batch.erase(axis);
    batch_strides.erase(axis);
    count = batch.numel();
  }
  template <class T>
  T* line(int64_t i) const {
    return static_cast<T*>(data) + place_of(i, batch, batch_strides);
  }
};

/// Calls body(plan's work, line) for all lines.
template <class Body>
void each_line(const Lines& lines, int64_t n, const Body& body) {
  if (lines.count == 0) return;
  const std::shared_ptr<const FourierPlan> plan = fourier_plan(n);
  const double size = static_cast<double>(n);
  detail::each_item(lines.batch, 8 * size * (1 + std::log2(size)), [&](int64_t begin, int64_t end) {
    FourierPlan::Work work;
    plan->prepare(work);
    for (int64_t i = begin; i < end; ++i) body(*plan, work, i);
  });
}

}  // namespace

FourierPlan::FourierPlan(int64_t n) : n_(n), factors_(factors_of(n)) {
  if (!factors_.empty() || n == 1) {
    fill_roots(roots_, n);
    return;
  }
  int64_t size = 1;
  while (size < 2 * n - 1) size *= 2;
  long_ = fourier_plan(size);
  // exp(-pi i k^2 / n). k^2 is reduced modulo 2 n, step by step, so that it does not overflow.
  chirp_.resize(n);
  chirp_transform_.resize(size);
  int64_t square = 0;
  for (int64_t k = 0; k < n; ++k) {
    const Number number = root_of(square, n);
    chirp_.re[static_cast<size_t>(k)] = static_cast<double>(number.real());
    chirp_.im[static_cast<size_t>(k)] = static_cast<double>(number.imag());
    square = (square + 2 * k + 1) % (2 * n);
  }
  for (int64_t k = 0; k < n; ++k)
    for (const int64_t at : {k, (size - k) % size}) {
      chirp_transform_.re[static_cast<size_t>(at)] = chirp_.re[static_cast<size_t>(k)];
      chirp_transform_.im[static_cast<size_t>(at)] = -chirp_.im[static_cast<size_t>(k)];
    }
  ComplexLists other;
  other.resize(size);
  long_->run_factors(chirp_transform_, other);
}

void FourierPlan::prepare(Work& work) const {
  work.data.resize(n_);
  if (long_ == nullptr) return work.other.resize(n_);
  work.long_data.resize(long_->n_);
  work.long_other.resize(long_->n_);
}

void FourierPlan::run(Work& work) const {
  if (long_ == nullptr) {
    run_factors(work.data, work.other);
  } else {
    run_convolution(work);
  }
}

void FourierPlan::run_factors(ComplexLists& data, ComplexLists& other) const {
  ComplexLists *from = &data, *to = &other;
  int64_t done = 1;
  for (const int64_t p : factors_) {
    const Stage stage{
        from->re.data(),  from->im.data(), to->re.data(), to->im.data(), done, n_ / (done * p), p,
        roots_.re.data(), roots_.im.data()};
    p == 4 ? radix4(stage) : p == 2 ? radix2(stage) : radix_odd(stage);
    done *= p;
    std::swap(from, to);
  }
  if (from != &data) std::swap(data, other);
}

// With c[k] = exp(-pi i k^2 / n) and 2 j k = j^2 + k^2 - (k - j)^2, y[k] = c[k] * the sum of
// (x[j] c[j]) / c[k - j], a convolution.
void FourierPlan::run_convolution(Work& work) const {
  ComplexLists &x = work.data, &wide = work.long_data;
  const auto n = static_cast<size_t>(n_), size = static_cast<size_t>(long_->n_);
  for (size_t k = 0; k < n; ++k) {
    wide.re[k] = x.re[k] * chirp_.re[k] - x.im[k] * chirp_.im[k];
    wide.im[k] = x.re[k] * chirp_.im[k] + x.im[k] * chirp_.re[k];
  }
  std::fill(wide.re.begin() + n_, wide.re.end(), 0.);
  std::fill(wide.im.begin() + n_, wide.im.end(), 0.);
  long_->run_factors(wide, work.long_other);
  // The inverse transform is the transform with real and imaginary parts exchanged, before and after.
  const double scale = 1 / static_cast<double>(size);
  for (size_t k = 0; k < size; ++k) {
    const double re = wide.re[k], im = wide.im[k], cr = chirp_transform_.re[k] * scale,
                 ci = chirp_transform_.im[k] * scale;
    wide.im[k] = re * cr - im * ci;
    wide.re[k] = re * ci + im * cr;
  }
  long_->run_factors(wide, work.long_other);
  for (size_t k = 0; k < n; ++k) {
    const double re = wide.im[k], im = wide.re[k];
    x.re[k] = re * chirp_.re[k] - im * chirp_.im[k];
    x.im[k] = re * chirp_.im[k] + im * chirp_.re[k];
  }
}

std::shared_ptr<const FourierPlan> fourier_plan(int64_t n) {
  // Not deleted at exit, because operations may still run then.
  static auto& mutex = *new std::mutex;
  static auto& plans = *new std::list<std::shared_ptr<const FourierPlan>>;
  const auto find = [&]() -> std::shared_ptr<const FourierPlan> {
    const auto at = std::find_if(plans.begin(), plans.end(), [n](const auto& p) { return p->size() == n; });
    if (at == plans.end()) return nullptr;
    plans.splice(plans.begin(), plans, at);
    return plans.front();
  };
  {
    const std::lock_guard lock(mutex);
    if (std::shared_ptr<const FourierPlan> plan = find()) return plan;
  }
  auto plan = std::make_shared<const FourierPlan>(n);
  if (n > kLongestKept) return plan;
  const std::lock_guard lock(mutex);
  if (std::shared_ptr<const FourierPlan> other = find()) return other;
  plans.push_front(plan);
  if (plans.size() > kKeptPlans) plans.pop_back();
  return plan;
}

void fourier(const Tensor& y, const Tensor& x, int axis, bool inverse, double scale) {
  detail::visit_real(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Lines from(x, axis, true), to(y, axis, true);
    each_line(to, to.size, [&](const FourierPlan& plan, FourierPlan::Work& work, int64_t i) {
      const T* const in = from.line<T>(i);
      T* const out = to.line<T>(i);
      std::vector<double>&re = inverse ? work.data.im : work.data.re,
      &im = inverse ? work.data.re : work.data.im;
      for (int64_t k = 0; k < from.size; ++k) {
        re[static_cast<size_t>(k)] = static_cast<double>(in[k * from.step]);
        im[static_cast<size_t>(k)] = static_cast<double>(in[k * from.step + from.part]);
      }
      plan.run(work);
      for (int64_t k = 0; k < to.size; ++k) {
        out[k * to.step] = static_cast<T>(re[static_cast<size_t>(k)] * scale);
        out[k * to.step + to.part] = static_cast<T>(im[static_cast<size_t>(k)] * scale);
      }
    });
  });
}

void fourier_of_real(const Tensor& y, const Tensor& x, int axis, double scale) {
  detail::visit_real(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Lines from(x, axis, false), to(y, axis, true);
    each_line(to, from.size, [&](const FourierPlan& plan, FourierPlan::Work& work, int64_t i) {
      const T* const in = from.line<T>(i);
      T* const out = to.line<T>(i);
      ComplexLists& data = work.data;
      for (int64_t k = 0; k < from.size; ++k) {
        data.re[static_cast<size_t>(k)] = static_cast<double>(in[k * from.step]);
        data.im[static_cast<size_t>(k)] = 0;
      }
      plan.run(work);
      for (int64_t k = 0; k < to.size; ++k) {
        out[k * to.step] = static_cast<T>(data.re[static_cast<size_t>(k)] * scale);
        // The numbers that are their own conjugates are real, whatever was rounded.
        const bool real = k == 0 || 2 * k == from.size;
        out[k * to.step + to.part] = real ? T(0) : static_cast<T>(data.im[static_cast<size_t>(k)] * scale);
      }
    });
  });
}

void fourier_to_real(const Tensor& y, const Tensor& x, int axis, double scale) {
  detail::visit_real(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Lines from(x, axis, true), to(y, axis, false);
    const int64_t n = to.size;
    each_line(to, n, [&](const FourierPlan& plan, FourierPlan::Work& work, int64_t i) {
      const T* const in = from.line<T>(i);
      T* const out = to.line<T>(i);
      // Exchanged, for the other sign of the exponent.
      std::vector<double>&re = work.data.im, &im = work.data.re;
      for (int64_t k = 0; k <= n / 2; ++k) {
        const double r = static_cast<double>(in[k * from.step]),
                     j = k == 0 || 2 * k == n ? 0 : static_cast<double>(in[k * from.step + from.part]);
        re[static_cast<size_t>(k)] = r;
        im[static_cast<size_t>(k)] = j;
        if (k == 0) continue;
        re[static_cast<size_t>(n - k)] = r;
        im[static_cast<size_t>(n - k)] = 2 * k == n ? 0 : -j;
      }
      plan.run(work);
      for (int64_t k = 0; k < n; ++k) out[k * to.step] = static_cast<T>(re[static_cast<size_t>(k)] * scale);
    });
  });
}

}  // namespace mx::kernels
