#include "operators/kernels/random.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/kernels/convert.h"
#include "operators/kernels/bad_values.h"
#include "operators/kernels/index_check.h"
#include "operators/kernels/random_fill.h"

namespace mx::kernels {
namespace {

using detail::fill_converted;

void check_floating(const Tensor& target, const char* op) {
  MX_CHECK(is_floating(target.dtype), InvalidArgument, "[", op, "] expected a floating-point target, got ",
           target.dtype);
}

/// Calls f(tag) for a floating-point type.
template <class F>
void visit_floating(DType type, const F& f) {
  visit(type, [&](auto tag) {
    if constexpr (!std::is_integral_v<typename decltype(tag)::type>) f(tag);
  });
}

/// f64 is generated from 53 bits in double, the others from 24 bits in float.
template <class T>
using Made = std::conditional_t<std::is_same_v<T, double>, double, float>;
template <class T>
constexpr int kWords = std::is_same_v<T, double> ? 2 : 1;

/// Returns the adjacent number of a finite one, upwards or downwards.
template <class T>
T neighbour(T value, bool up) {
  if constexpr (std::is_floating_point_v<T>) {
    const T infinity = std::numeric_limits<T>::infinity();
    return std::nextafter(value, up ? infinity : -infinity);
  } else {
    const bool negative = (value.bits & 0x8000) != 0;
    if ((value.bits & 0x7fff) == 0) {
      value.bits = up ? 0x0001 : 0x8001;
    } else {
      value.bits = static_cast<uint16_t>(value.bits + (up == negative ? -1 : 1));
    }
    return value;
  }
}

const auto kUniform = [](const uint32_t* words, int64_t n, auto* values) {
  detail::to_uniform(words, n, values);
};
const auto kNormal = [](const uint32_t* words, int64_t n, auto* values) {
  detail::to_normal(words, n, values);
};
const auto kExponential = [](const uint32_t* words, int64_t n, double* values) {
  detail::to_exponential(words, n, values);
};
const auto kBits = [](const uint32_t* words, int64_t n, uint64_t* values) {
  for (int64_t i = 0; i < n; ++i) values[i] = words[2 * i] | uint64_t{words[2 * i + 1]} << 32;
};

template <class F>
void bernoulli(const Tensor& target, uint64_t seed, uint64_t offset, const F& probability_of) {
  visit(target.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    fill_converted<T, 2, double>(target, seed, offset, kUniform, [&](T& element, double u, int64_t i) {
      element = convert<T>(u < probability_of(i));
    });
  });
}

}  // namespace

UniformLimits uniform_limits(DType dtype, double low, double high) {
  MX_CHECK(std::isfinite(low) && std::isfinite(high) && low < high, InvalidArgument,
           "[random_uniform] expected finite limits, low < high, got ", low, " and ", high);
  UniformLimits limits{};
  visit_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T first = convert<T>(low), last = convert<T>(high);
    if (double(first) < low) first = neighbour(first, true);
    if (double(last) >= high) last = neighbour(last, false);
    MX_CHECK(std::isfinite(double(first)) && std::isfinite(double(last)) && first <= last, InvalidArgument,
             "[random_uniform] expected limits between which there are numbers of type ", dtype, ", got ",
             low, " and ", high);
    limits = {double(first), double(last)};
  });
  return limits;
}

void random_uniform(const Tensor& target, double low, double high, uint64_t seed, uint64_t offset) {
  check_floating(target, "random_uniform");
  const UniformLimits limits = uniform_limits(target.dtype, low, high);
  visit_floating(target.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T first = convert<T>(limits.first), last = convert<T>(limits.last);
    if (low == 0 && high == 1) {
      fill_converted<T, kWords<T>, Made<T>>(target, seed, offset, kUniform,
                                            [&](T& element, Made<T> u, int64_t) {
                                              element = T(u);
                                              if constexpr (sizeof(T) == 2)
                                                element = std::min(float(element), float(last));
                                            });
      return;
    }
    // The width of the interval may overflow a double; half of it does not.
    const double half = high / 2 - low / 2;
    fill_converted<T, kWords<T>, Made<T>>(
        target, seed, offset, kUniform, [&](T& element, Made<T> u, int64_t) {
          const T value = convert<T>(low + half * double(u) + half * double(u));
          element = value < first ? first : value > last ? last : value;
        });
  });
}

void random_normal(const Tensor& target, double mean, double deviation, uint64_t seed, uint64_t offset) {
  check_floating(target, "random_normal");
  MX_CHECK(std::isfinite(mean) && std::isfinite(deviation) && deviation >= 0, InvalidArgument,
           "[random_normal] expected a finite mean and a deviation of 0 or more, got ", mean, " and ",
           deviation);
  visit_floating(target.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using V = Made<T>;
    const V m = static_cast<V>(mean), d = static_cast<V>(deviation);
    fill_converted<T, kWords<T>, V>(target, seed, offset, kNormal,
                                    [&](T& element, V z, int64_t) { element = T(z * d + m); });
  });
}

void random_exponential(const Tensor& target, double rate, uint64_t seed, uint64_t offset) {
  check_floating(target, "random_exponential");
  MX_CHECK(std::isfinite(rate) && rate > 0, InvalidArgument,
           "[random_exponential] expected a finite rate above 0, got ", rate);
  visit_floating(target.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    fill_converted<T, 2, double>(target, seed, offset, kExponential,
                                 [&](T& element, double x, int64_t) { element = convert<T>(x / rate); });
  });
}

void random_bernoulli(const Tensor& target, double probability, uint64_t seed, uint64_t offset) {
  MX_CHECK(probability >= 0 && probability <= 1, InvalidArgument,
           "[random_bernoulli] expected a probability from 0 to 1, got ", probability);
  bernoulli(target, seed, offset, [&](int64_t) { return probability; });
}

void random_bernoulli(const Tensor& target, const Tensor& probability, uint64_t seed, uint64_t offset) {
  check_floating(probability, "random_bernoulli");
  MX_CHECK(probability.shape == target.shape, InvalidArgument,
           "[random_bernoulli] expected probabilities of shape ", target.shape, ", got ", probability.shape);
  const bool contiguous = probability.contiguous();
  visit_floating(probability.dtype, [&](auto tag) {
    using P = typename decltype(tag)::type;
    bernoulli(target, seed, offset, [&](int64_t i) {
      const int64_t place = contiguous ? i : place_of(i, target.shape, probability.strides);
      const auto p = static_cast<double>(probability.as<P>()[place]);
      if (!(p >= 0 && p <= 1)) throw InvalidArgument(detail::bad_probability(p, i));
      return p;
    });
  });
}

void random_integers(const Tensor& target, int64_t low, int64_t high, uint64_t seed, uint64_t offset) {
  MX_CHECK(is_integral(target.dtype), InvalidArgument, "[random_integers] expected an integral target, got ",
           target.dtype);
  MX_CHECK(low < high, InvalidArgument, "[random_integers] expected low < high, got ", low, " and ", high);
  const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  visit(target.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_integral_v<T>) {
      MX_CHECK(low >= std::numeric_limits<T>::min() && high - 1 <= std::numeric_limits<T>::max(),
               InvalidArgument, "[random_integers] expected limits that ", target.dtype, " can hold, got ",
               low, " and ", high);
      fill_converted<T, 2, uint64_t>(target, seed, offset, kBits, [&](T& element, uint64_t bits, int64_t i) {
        const uint64_t k = detail::bounded(bits, range, seed, offset + static_cast<uint64_t>(i));
        element = static_cast<T>(static_cast<int64_t>(static_cast<uint64_t>(low) + k));
      });
    }
  });
}

void random_permutation(const Tensor& target, uint64_t seed, uint64_t offset) {
  MX_CHECK(target.rank() == 1, InvalidArgument,
           "[random_permutation] expected a target of rank 1, got shape ", target.shape);
  const int64_t n = target.shape[0], step = target.strides[0];
  detail::check_index_target(target, n - 1, "a target", "random_permutation");
  visit(target.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* const t = target.as<T>();
    if (n == 0) return;
    t[0] = T(0);
    // Fisher-Yates, inside out: element i goes to a random place among the first i + 1, and the value there
    // moves to place i.
    detail::Chunk<2, uint64_t> chunk;
    for (int64_t begin = 0; begin < n; begin += detail::kRandomChunk) {
      const int64_t count = std::min(detail::kRandomChunk, n - begin);
      const uint64_t* bits = chunk.make(seed, offset + static_cast<uint64_t>(begin), count, kBits);
      for (int64_t i = begin; i < begin + count; ++i) {
        const uint64_t position = offset + static_cast<uint64_t>(i);
        const int64_t j = static_cast<int64_t>(
            detail::bounded(bits[i - begin], static_cast<uint64_t>(i) + 1, seed, position));
        t[i * step] = t[j * step];
        t[j * step] = static_cast<T>(i);
      }
    }
  });
}

void random_categorical(const Tensor& target, const Tensor& weights, bool logits, uint64_t seed,
                        uint64_t offset) {
  const char* const op = "categorical";
  check_floating(weights, op);
  const int rank = weights.rank();
  MX_CHECK(rank >= 1 && target.rank() == rank, InvalidArgument, "[", op,
           "] expected weights (.., n) and a target (.., samples), got shapes ", weights.shape, " and ",
           target.shape);
  for (int i = 0; i + 1 < rank; ++i)
    MX_CHECK(target.shape[i] == weights.shape[i], InvalidArgument, "[", op, "] expected a target of shape ",
             weights.shape, " except for the last dimension, got ", target.shape);
  const int64_t n = weights.shape.back(), samples = target.shape.back();
  detail::check_index_target(target, n - 1, "a target", op);
  Shape rows = weights.shape;
  rows.resize(rank - 1);
  Strides row_strides = weights.strides;
  row_strides.resize(rank - 1);
  const int64_t row_count = rows.numel();
  if (row_count == 0 || samples == 0) return;
  MX_CHECK(n > 0, InvalidArgument, "[", op, "] expected at least one weight per row, got weights of shape ",
           weights.shape);
  // Checks all rows before the target is written, so that an error leaves it unchanged.
  std::vector<double> sums(static_cast<size_t>(row_count * n));
  visit_floating(weights.dtype, [&](auto tag) {
    using W = typename decltype(tag)::type;
    for (int64_t row = 0; row < row_count; ++row) {
      const W* w = weights.as<W>() + place_of(row, rows, row_strides);
      const int64_t step = weights.strides[rank - 1];
      double* sum = sums.data() + row * n;
      double largest = 0;
      if (logits) {
        largest = -std::numeric_limits<double>::infinity();
        for (int64_t i = 0; i < n; ++i) largest = std::max(largest, static_cast<double>(w[i * step]));
        if (!std::isfinite(largest)) throw InvalidArgument(detail::bad_largest_logit(op, largest, row));
      }
      double total = 0;
      for (int64_t i = 0; i < n; ++i) {
        const double value = static_cast<double>(w[i * step]);
        const double weight = logits ? std::exp(value - largest) : value;
        if (!(weight >= 0 && std::isfinite(weight)))
          throw InvalidArgument(detail::bad_weight(op, value, i, row));
        sum[i] = total += weight;
      }
      if (!(total > 0 && std::isfinite(total)))
        throw InvalidArgument(detail::bad_total_weight(op, total, row));
    }
  });
  visit(target.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    fill_converted<T, 2, double>(target, seed, offset, kUniform, [&](T& element, double u, int64_t i) {
      const double* first = sums.data() + i / samples * n;
      // The first cumulative sum beyond the point, so that its weight is not 0. The point must be below the
      // total, even after rounding up.
      const double point = std::min(u * first[n - 1], std::nextafter(first[n - 1], 0.0));
      element = convert<T>(static_cast<int64_t>(std::upper_bound(first, first + n, point) - first));
    });
  });
}

}  // namespace mx::kernels
