#include "operators/kernels/fourier.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <list>
#include <mutex>
#include <numbers>
#include <utility>

#include "ndarray/kernels/parallel.h"
#include "operators/kernels/fourier_rows.h"
#include "operators/kernels/fourier_stages.h"
#include "operators/kernels/matrix_stack.h"

namespace mx::kernels {
namespace {

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

/// exp(-pi i k / half) for all k < count: products of two tables of about sqrt(count) numbers in long double.
void fill_roots(ComplexLists& roots, int64_t count, int64_t half) {
  roots.resize(count);
  const auto step = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(count))));
  std::vector<Number> fine;
  for (int64_t k = 0; k < step; ++k) fine.push_back(root_of(k, half));
  for (int64_t begin = 0; begin < count; begin += step) {
    const Number coarse = root_of(begin, half);
    for (int64_t k = begin; k < std::min(count, begin + step); ++k) {
      const Number root = coarse * fine[static_cast<size_t>(k - begin)];
      roots.re[static_cast<size_t>(k)] = static_cast<double>(root.real());
      roots.im[static_cast<size_t>(k)] = static_cast<double>(root.imag());
    }
  }
}

std::vector<int64_t> factors_of(int64_t n) {
  std::vector<int64_t> factors;
  for (int64_t p = 4; p <= detail::kLargestRadix && n > 1; p = p == 4 ? 2 : p == 2 ? 3 : p + 2)
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
  /// Whether the complex numbers of a line are pairs without gaps.
  bool pairs() const { return step == 2 && part == 1; }
  template <class T>
  T* line(int64_t i) const {
    return static_cast<T*>(data) + place_of(i, batch, batch_strides);
  }
};

// Lines that are so long that several would not fit the second-level cache are transformed one by one.
constexpr int64_t kLongestTogether = 2048;

/// The addresses of the lines that are transformed together.
template <class T>
struct LaneAddresses {
  T* at[detail::kFourierLanes];
  int64_t count;

  LaneAddresses(const Lines& lines, int64_t first, int64_t lanes) : count(lanes) {
    for (int64_t l = 0; l < lanes; ++l) at[l] = lines.line<T>(first + l);
  }
  /// Whether there are as many lines as the kernels of fourier_rows.h take.
  bool together() const { return count == detail::kFourierLanes; }
};

/// Calls load(plan, work, first) and store(plan, work, first) for work.lanes lines from `first` on, before
/// and after their transform. `n`: the length of the plan.
template <class Load, class Store>
void each_line(const Lines& lines, int64_t n, const Load& load, const Store& store) {
  if (lines.count == 0) return;
  const std::shared_ptr<const FourierPlan> plan = fourier_plan(n);
  const double size = static_cast<double>(n);
  const int64_t most = n <= kLongestTogether ? detail::kFourierLanes : 1;
  // Every piece has whole groups of lines, but the last one.
  constexpr double kWorkOfPiece = 1 << 18;
  const double items = kWorkOfPiece / (8 * size * (1 + std::log2(size)));
  const int64_t groups = std::max<int64_t>(1, static_cast<int64_t>(items) / most);
  parallel_for(lines.count, groups * most, [&](int64_t begin, int64_t end) {
    FourierPlan::Work work;
    for (int64_t first = begin; first < end; first += most) {
      const int64_t lanes = std::min(most, end - first);
      plan->prepare(work, lanes);
      load(*plan, work, first);
      plan->run(work);
      store(*plan, work, first);
    }
  });
}

}  // namespace

FourierPlan::FourierPlan(int64_t n) : n_(n), factors_(factors_of(n)) {
  fill_roots(half_roots_, n + 1, n);
  if (!factors_.empty() || n == 1) {
    fill_roots(roots_, 2 * n, n);
    // Every second one, so that the numbers of both tables agree.
    for (size_t k = 0; k < static_cast<size_t>(n); ++k) {
      roots_.re[k] = roots_.re[2 * k];
      roots_.im[k] = roots_.im[2 * k];
    }
    roots_.resize(n);
    return;
  }
  int64_t size = 1;
  while (size < 2 * n - 1) size *= 2;
  long_ = fourier_plan(size);
  // exp(-pi i k^2 / n). k^2 is reduced modulo 2 n, step by step, so that it does not overflow.
  chirp_.resize(n);
  chirp_transform_.resize(size);
  std::fill(chirp_transform_.re.begin(), chirp_transform_.re.end(), 0.);
  std::fill(chirp_transform_.im.begin(), chirp_transform_.im.end(), 0.);
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
  long_->run_factors(chirp_transform_, other, 1);
}

void FourierPlan::prepare(Work& work, int64_t lanes) const {
  work.lanes = lanes;
  work.data.resize(n_ * lanes);
  if (long_ == nullptr) return work.other.resize(n_ * lanes);
  work.long_data.resize(long_->n_ * lanes);
  work.long_other.resize(long_->n_ * lanes);
}

void FourierPlan::run(Work& work) const {
  if (long_ == nullptr) {
    run_factors(work.data, work.other, work.lanes);
  } else {
    run_convolution(work);
  }
}

void FourierPlan::run_factors(ComplexLists& data, ComplexLists& other, int64_t lanes) const {
  ComplexLists *from = &data, *to = &other;
  int64_t done = 1;
  for (const int64_t p : factors_) {
    detail::run_stage({from->re.data(), from->im.data(), to->re.data(), to->im.data(), done, n_ / (done * p),
                       p, lanes, roots_.re.data(), roots_.im.data()});
    done *= p;
    std::swap(from, to);
  }
  if (from != &data) std::swap(data, other);
}

// With c[k] = exp(-pi i k^2 / n) and 2 j k = j^2 + k^2 - (k - j)^2, y[k] = c[k] * the sum of
// (x[j] c[j]) / c[k - j], a convolution.
void FourierPlan::run_convolution(Work& work) const {
  ComplexLists &x = work.data, &wide = work.long_data;
  const auto n = static_cast<size_t>(n_), size = static_cast<size_t>(long_->n_),
             lanes = static_cast<size_t>(work.lanes);
  for (size_t k = 0; k < n; ++k)
    for (size_t i = k * lanes; i < (k + 1) * lanes; ++i) {
      wide.re[i] = x.re[i] * chirp_.re[k] - x.im[i] * chirp_.im[k];
      wide.im[i] = x.re[i] * chirp_.im[k] + x.im[i] * chirp_.re[k];
    }
  std::fill(wide.re.begin() + n_ * work.lanes, wide.re.end(), 0.);
  std::fill(wide.im.begin() + n_ * work.lanes, wide.im.end(), 0.);
  long_->run_factors(wide, work.long_other, work.lanes);
  // The inverse transform is the transform with real and imaginary parts exchanged, before and after.
  const double scale = 1 / static_cast<double>(size);
  for (size_t k = 0; k < size; ++k) {
    const double cr = chirp_transform_.re[k] * scale, ci = chirp_transform_.im[k] * scale;
    for (size_t i = k * lanes; i < (k + 1) * lanes; ++i) {
      const double re = wide.re[i], im = wide.im[i];
      wide.im[i] = re * cr - im * ci;
      wide.re[i] = re * ci + im * cr;
    }
  }
  long_->run_factors(wide, work.long_other, work.lanes);
  for (size_t k = 0; k < n; ++k)
    for (size_t i = k * lanes; i < (k + 1) * lanes; ++i) {
      const double re = wide.im[i], im = wide.re[i];
      x.re[i] = re * chirp_.re[k] - im * chirp_.im[k];
      x.im[i] = re * chirp_.im[k] + im * chirp_.re[k];
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

// Lanes are the inner loops below: neighbouring lines of an axis other than the last are side by side in
// memory.

void fourier(const Tensor& y, const Tensor& x, int axis, bool inverse, double scale) {
  detail::visit_real(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Lines from(x, axis, true), to(y, axis, true);
    // With real and imaginary parts exchanged, before and after, the exponent has the other sign.
    const auto re = inverse ? &ComplexLists::im : &ComplexLists::re,
               im = inverse ? &ComplexLists::re : &ComplexLists::im;
    each_line(
        to, to.size,
        [&](const FourierPlan&, FourierPlan::Work& work, int64_t first) {
          const LaneAddresses<const T> in(from, first, work.lanes);
          double *const r = (work.data.*re).data(), *const j = (work.data.*im).data();
          if (in.together() && from.pairs()) return detail::read_pairs<T>(in.at, from.size, r, j);
          for (int64_t k = 0; k < from.size; ++k)
            for (int64_t l = 0; l < in.count; ++l) {
              r[k * in.count + l] = static_cast<double>(in.at[l][k * from.step]);
              j[k * in.count + l] = static_cast<double>(in.at[l][k * from.step + from.part]);
            }
        },
        [&](const FourierPlan&, FourierPlan::Work& work, int64_t first) {
          const LaneAddresses<T> out(to, first, work.lanes);
          const double *const r = (work.data.*re).data(), *const j = (work.data.*im).data();
          if (out.together() && to.pairs()) return detail::write_pairs<T>(out.at, to.size, r, j, scale);
          for (int64_t k = 0; k < to.size; ++k)
            for (int64_t l = 0; l < out.count; ++l) {
              out.at[l][k * to.step] = static_cast<T>(r[k * out.count + l] * scale);
              out.at[l][k * to.step + to.part] = static_cast<T>(j[k * out.count + l] * scale);
            }
        });
  });
}

// An even number n of real numbers is transformed as n / 2 complex ones, whose parts are the numbers at even
// and at odd positions. With e and o, the transforms of the two, z = e + i o, and z[-k]* = e[k] - i o[k]:
// y[k] = e[k] + w^k o[k] with w = exp(-2 pi i / n).
void fourier_of_real(const Tensor& y, const Tensor& x, int axis, double scale) {
  detail::visit_real(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Lines from(x, axis, false), to(y, axis, true);
    const int64_t n = from.size, pair = n % 2 == 0 ? 2 : 1, length = n / pair;
    each_line(
        to, length,
        [&](const FourierPlan&, FourierPlan::Work& work, int64_t first) {
          const LaneAddresses<const T> in(from, first, work.lanes);
          double *const re = work.data.re.data(), *const im = work.data.im.data();
          if (in.together() && pair == 2 && from.step == 1)
            return detail::read_pairs<T>(in.at, length, re, im);
          for (int64_t k = 0; k < length; ++k)
            for (int64_t l = 0; l < in.count; ++l) {
              re[k * in.count + l] = static_cast<double>(in.at[l][pair * k * from.step]);
              im[k * in.count + l] = pair == 2 ? static_cast<double>(in.at[l][(2 * k + 1) * from.step]) : 0;
            }
        },
        [&](const FourierPlan& plan, FourierPlan::Work& work, int64_t first) {
          const LaneAddresses<T> out(to, first, work.lanes);
          const ComplexLists& roots = plan.half_roots();
          if (out.together() && pair == 2 && to.pairs())
            return detail::write_real_transform<T>(out.at, length, work.data.re.data(), work.data.im.data(),
                                                   roots.re.data(), roots.im.data(), scale);
          for (int64_t l = 0; l < out.count; ++l) {
            const double *const re = work.data.re.data() + l, *const im = work.data.im.data() + l;
            const auto set = [&](int64_t k, double r, double j) {
              out.at[l][k * to.step] = static_cast<T>(r * scale);
              out.at[l][k * to.step + to.part] = static_cast<T>(j * scale);
            };
            if (pair == 1) {
              for (int64_t k = 0; k < to.size; ++k) set(k, re[k * out.count], k == 0 ? 0 : im[k * out.count]);
              continue;
            }
            set(0, re[0] + im[0], 0);
            set(length, re[0] - im[0], 0);
            for (int64_t k = 1; k < length; ++k) {
              const int64_t a = k * out.count, b = (length - k) * out.count;
              const double er = (re[a] + re[b]) / 2, ei = (im[a] - im[b]) / 2, o_r = (im[a] + im[b]) / 2,
                           oi = (re[b] - re[a]) / 2, wr = roots.re[static_cast<size_t>(k)],
                           wi = roots.im[static_cast<size_t>(k)];
              set(k, er + (wr * o_r - wi * oi), ei + (wr * oi + wi * o_r));
            }
          }
        });
  });
}

// The same backwards: z[k] = 2 e[k] + 2 i o[k], with 2 e[k] = x[k] + x[-k]* and 2 o[k] = (x[k] - x[-k]*) /
// w^k.
void fourier_to_real(const Tensor& y, const Tensor& x, int axis, double scale) {
  detail::visit_real(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Lines from(x, axis, true), to(y, axis, false);
    const int64_t n = to.size, pair = n % 2 == 0 ? 2 : 1, length = n / pair;
    each_line(
        to, length,
        [&](const FourierPlan& plan, FourierPlan::Work& work, int64_t first) {
          const LaneAddresses<const T> lines(from, first, work.lanes);
          const ComplexLists& roots = plan.half_roots();
          for (int64_t l = 0; l < lines.count; ++l) {
            const T* const in = lines.at[l];
            // Exchanged, for the other sign of the exponent.
            double *const re = work.data.im.data() + l, *const im = work.data.re.data() + l;
            const auto real = [&](int64_t k) { return static_cast<double>(in[k * from.step]); };
            const auto imaginary = [&](int64_t k) {
              return k == 0 || 2 * k == n ? 0. : static_cast<double>(in[k * from.step + from.part]);
            };
            if (pair == 1) {
              re[0] = real(0);
              im[0] = 0;
              for (int64_t k = 1; k <= n / 2; ++k) {
                const int64_t a = k * work.lanes, b = (n - k) * work.lanes;
                re[a] = re[b] = real(k);
                im[a] = imaginary(k);
                im[b] = -im[a];
              }
              continue;
            }
            for (int64_t k = 0; k < length; ++k) {
              const double ar = real(k), ai = imaginary(k), br = real(length - k),
                           bi = -imaginary(length - k);
              const double dr = ar - br, di = ai - bi, wr = roots.re[static_cast<size_t>(k)],
                           wi = -roots.im[static_cast<size_t>(k)];
              re[k * work.lanes] = ar + br - (dr * wi + di * wr);
              im[k * work.lanes] = ai + bi + (dr * wr - di * wi);
            }
          }
        },
        [&](const FourierPlan&, FourierPlan::Work& work, int64_t first) {
          const LaneAddresses<T> out(to, first, work.lanes);
          const double *const re = work.data.im.data(), *const im = work.data.re.data();
          if (out.together() && pair == 2 && to.step == 1)
            return detail::write_pairs<T>(out.at, length, re, im, scale);
          for (int64_t k = 0; k < length; ++k)
            for (int64_t l = 0; l < out.count; ++l) {
              out.at[l][pair * k * to.step] = static_cast<T>(re[k * out.count + l] * scale);
              if (pair == 2) out.at[l][(2 * k + 1) * to.step] = static_cast<T>(im[k * out.count + l] * scale);
            }
        });
  });
}

}  // namespace mx::kernels
