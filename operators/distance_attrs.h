// The order of distances of rows, for the kernels of every device. Internal.
#pragma once

#include <limits>

namespace mx::detail {

struct DistanceAttrs {
  double p = 2;
  template <class V>
  static void fields(V&& v) {
    v("p", &DistanceAttrs::p, "the order of the distance; inf: the largest difference; 0: their number");
  }
};

/// How the differences of the coordinates make a distance.
enum class DistanceKind {
  count,    ///< p = 0: how many are not 0
  sum,      ///< p = 1: the sum of their magnitudes
  squares,  ///< p = 2
  most,     ///< p = inf: the largest magnitude
  power,    ///< other p: the root of the sum of powers
};

inline DistanceKind distance_kind(double p) {
  return p == 0                                         ? DistanceKind::count
         : p == 1                                       ? DistanceKind::sum
         : p == 2                                       ? DistanceKind::squares
         : p == std::numeric_limits<double>::infinity() ? DistanceKind::most
                                                        : DistanceKind::power;
}

}  // namespace mx::detail
