// Sums of probabilities whose logarithms are given, for the host and for GPUs; T is double.
#pragma once

#include <cmath>
#include <limits>

namespace mx::formulas {

/// The logarithm of the probability 0.
inline constexpr double kNever = -std::numeric_limits<double>::infinity();

template <class T>
constexpr T log_add(T a, T b) {
  const T high = a < b ? b : a, low = a < b ? a : b;
  return high == -std::numeric_limits<T>::infinity() ? high : high + std::log1p(std::exp(low - high));
}

template <class T>
constexpr T log_add(T a, T b, T c) {
  const T most = a < b ? b : a, top = most < c ? c : most;
  if (top == -std::numeric_limits<T>::infinity()) return top;
  return top + std::log(std::exp(a - top) + std::exp(b - top) + std::exp(c - top));
}

}  // namespace mx::formulas
