// Vectorised inner loops of resampling. Internal to resample.cc.
#pragma once

#include <cstdint>
#include <type_traits>

namespace mx::kernels::detail {

/// Elements of a row that share their entries in RowTaps.
inline constexpr int64_t kTapLanes = 16;

/// The type of a place for elements of type C: vectors gather with indices of the elements' size.
template <class C>
using TapPlace = std::conditional_t<std::is_same_v<C, float>, int32_t, int64_t>;

/// The taps of a row of results, in blocks of kTapLanes elements. Block b has starts[b + 1] - starts[b]
/// entries; each has a place and a weight for every lane. A lane without a tap has place -1 and weight 0.
template <class C>
struct RowTaps {
  const int64_t* starts;
  const TapPlace<C>* places;
  const C* weights;
  int64_t n;  ///< elements of the row
  bool full;  ///< every lane has a tap in every entry
};

/// to[i] = sum of weight * from[place] over the taps of element i.
void resample_row(const RowTaps<float>& taps, const float* from, float* to);
void resample_row(const RowTaps<double>& taps, const double* from, double* to);

/// to = sum of weights[k] * rows[k] over `count` rows of n elements, plus `to` if `adds`. count > 0.
void weigh_rows(const float* const* rows, const float* weights, int64_t count, int64_t n, bool adds,
                float* to);
void weigh_rows(const double* const* rows, const double* weights, int64_t count, int64_t n, bool adds,
                double* to);

}  // namespace mx::kernels::detail
