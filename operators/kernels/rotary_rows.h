// Rows of the rotary position embedding. Internal to rotary.cc.
#pragma once

#include <cstdint>

namespace mx::kernels::detail {

/// Rotates the pairs of a row: elements i and i + pairs, or 2i and 2i + 1 if `interleaved`. `from` and `to`
/// are the same or do not overlap. C is float or double.
template <class C>
void rotate_pairs(const C* from, C* to, const C* cosines, const C* sines, int64_t pairs, bool interleaved);

/// Sets cosines[i] = cosine of a + b and sines[i] = its sine, times sign, where the angles a and b of pair i
/// are given by their cosines and sines in double.
void add_angles(const double* cos_a, const double* sin_a, const double* cos_b, const double* sin_b,
                int64_t pairs, double sign, float* cosines, float* sines);

}  // namespace mx::kernels::detail
