// The rows of attention, with the vectors of this processor. Internal to the kernels of attention.
#pragma once

#include <cstdint>

namespace mx::kernels {

/// Softmax of a row in pieces.
template <class T>
struct RunningSoftmax {
  T top;  ///< the largest score so far; -infinity before the first
  T sum;  ///< of exp(score - top) so far
};

/// Replaces the n scores of the next piece by exp(score - top), with the new maximum. Returns the factor by
/// which what has been added up with the old maximum must be multiplied. NaN and +infinity make the sum NaN.
float next_piece(float* scores, int64_t n, RunningSoftmax<float>& row);
double next_piece(double* scores, int64_t n, RunningSoftmax<double>& row);

/// x *= factor
void scale_row(float* x, int64_t n, float factor);
void scale_row(double* x, int64_t n, double factor);

/// scores = exp(scores - sum): the weights again. Zeros if `sum` is -infinity.
void weights_of_row(float* scores, int64_t n, float sum);
void weights_of_row(double* scores, int64_t n, double sum);

/// gradients = weights * (gradients - delta) * scale
void score_gradients_of_row(const float* weights, float* gradients, int64_t n, float delta, float scale);
void score_gradients_of_row(const double* weights, double* gradients, int64_t n, double delta, double scale);

}  // namespace mx::kernels
