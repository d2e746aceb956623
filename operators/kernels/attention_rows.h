// The rows of attention, with the vectors of this processor. Internal to the kernels of attention.
//
// Rows of an argument with a `pitch` begin `pitch` elements apart. All others are contiguous, of n elements.
#pragma once

#include <cstdint>

namespace mx::kernels {

/// Softmax of a row in pieces.
template <class T>
struct RunningSoftmax {
  T top;  ///< the largest score so far; -infinity before the first
  T sum;  ///< of exp(score - top) so far
};

/// Continues the softmax of `count` rows with the n scores of the next piece of each, which become
/// exp(score - top) with the new maximum. factors[r] receives the factor by which what has been added up with
/// the old maximum of row r must be multiplied. NaN and +infinity make the sum NaN.
void next_pieces(float* scores, int64_t count, int64_t n, RunningSoftmax<float>* rows, float* factors);
void next_pieces(double* scores, int64_t count, int64_t n, RunningSoftmax<double>* rows, double* factors);

/// x *= factor
void scale_row(float* x, int64_t n, float factor);
void scale_row(double* x, int64_t n, double factor);

/// to = from * factors[r] for each row r; `from` has its rows one behind the other. A null pointer: all
/// factors are 1.
void copy_rows(float* to, int64_t pitch, const float* from, int64_t count, int64_t n, const float* factors);
void copy_rows(double* to, int64_t pitch, const double* from, int64_t count, int64_t n,
               const double* factors);

/// Copies rows that are `pitch` elements apart, so that they lie one behind the other.
void gather_rows(float* to, const float* from, int64_t pitch, int64_t count, int64_t n);
void gather_rows(double* to, const double* from, int64_t pitch, int64_t count, int64_t n);

/// scores = exp(scores - sums[r]) for each row r: the weights again. Zeros where sums[r] is -infinity.
void weights_of_rows(float* scores, int64_t count, int64_t n, const float* sums);
void weights_of_rows(double* scores, int64_t count, int64_t n, const double* sums);

/// gradients = weights * (gradients - delta[r]) * scale for each row r
void score_gradients_of_rows(const float* weights, float* gradients, int64_t count, int64_t n,
                             const float* delta, float scale);
void score_gradients_of_rows(const double* weights, double* gradients, int64_t count, int64_t n,
                             const double* delta, double scale);

/// to[r] = the sum of a * b over row r
void products_of_rows(float* to, const float* a, const float* b, int64_t count, int64_t n);
void products_of_rows(double* to, const double* a, const double* b, int64_t count, int64_t n);

}  // namespace mx::kernels
