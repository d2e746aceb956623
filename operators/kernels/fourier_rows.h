// Between rows of numbers in memory and the side-by-side form of kFourierLanes transforms, compiled for every
// instruction set. Internal to fourier.cc. T is float or double. Number k of transform l is at
// k * kFourierLanes + l in `re` and `im`.
#pragma once

#include <cstdint>

namespace mx::kernels::detail {

/// Transforms that run at once, so that vectors have their numbers side by side.
inline constexpr int64_t kFourierLanes = 8;

/// Reads n pairs of each row: re[k] = rows[l][2 k], im[k] = rows[l][2 k + 1].
template <class T>
void read_pairs(const T* const* rows, int64_t n, double* re, double* im);

/// The reverse: writes n pairs to each row, multiplied by `scale`.
template <class T>
void write_pairs(T* const* rows, int64_t n, const double* re, const double* im, double scale);

/// Writes the n + 1 first numbers of the transform of 2 n real ones to each row, as pairs, from the transform
/// of n complex ones (see fourier_of_real()). roots: exp(-pi i k / n).
template <class T>
void write_real_transform(T* const* rows, int64_t n, const double* re, const double* im,
                          const double* roots_re, const double* roots_im, double scale);

}  // namespace mx::kernels::detail
