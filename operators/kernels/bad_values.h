// The messages for values that a kernel refuses: the same from a kernel of the CPU and of a GPU.
#pragma once

#include <cstdint>
#include <string>

#include "engine/base/check.h"
#include "ndarray/shape.h"

namespace mx::kernels::detail {

/// Returns the position of element i, in row-major order, in an array of this shape.
inline Shape position_of(int64_t i, const Shape& shape) {
  Shape position = Shape::filled(shape.rank(), 0);
  for (int d = shape.rank() - 1; d >= 0; i /= shape[d--]) position[d] = i % shape[d];
  return position;
}

/// An index outside [lowest, size).
inline std::string bad_index(const char* op, int64_t lowest, int64_t size, int axis, int64_t index,
                             const Shape& position) {
  return mx::detail::concat("[", op, "] expected indices from ", lowest, " to ", size - 1, " into axis ",
                            axis, " of size ", size, ", got ", index, " at position ", position);
}

/// Indices into an axis without elements.
inline std::string no_place_for_indices(const char* op, int axis, int64_t indices) {
  return mx::detail::concat("[", op, "] expected no indices for axis ", axis, " of size 0, got ", indices);
}

/// Offsets of segments or rows (`what`): the first one, two that do not ascend, and the last one, which must
/// be the number of entries.
inline std::string bad_first_offset(const char* op, const char* what, int64_t first) {
  return mx::detail::concat("[", op, "] expected ", what, " that begin with 0, got ", first);
}
inline std::string bad_order(const char* op, const char* what, int64_t before, int64_t after, int64_t i) {
  return mx::detail::concat("[", op, "] expected ", what, " that ascend, got ", before, " and then ", after,
                            " at position ", i);
}
inline std::string bad_last_offset(const char* op, const char* what, int64_t entries, int64_t last) {
  return mx::detail::concat("[", op, "] expected ", what, " that end with the number of entries, ", entries,
                            ", got ", last);
}

/// A label that is neither a class nor `ignore`.
inline std::string bad_label(const char* op, int64_t classes, int64_t ignore, int64_t label,
                             const Shape& position) {
  return mx::detail::concat("[", op, "] expected labels from 0 to ", classes - 1, " (", classes,
                            " classes) or ", ignore, " to ignore, got ", label, " at position ", position);
}

/// An index of the gradient of max_pool that is no element of its plane.
inline std::string bad_pool_index(int64_t elements, int64_t index, int64_t plane) {
  return mx::detail::concat("[max_pool_backward] expected indices from 0 to ", elements - 1, ", got ", index,
                            " in plane ", plane);
}

inline std::string bad_probability(double probability, int64_t element) {
  return mx::detail::concat("[bernoulli_of] expected probabilities from 0 to 1, got ", probability,
                            " at element ", element);
}

/// " (matrix (1, 2) of a stack of shape (2, 3))"; "" if there is only one matrix.
inline std::string at_item(int64_t item, const Shape& batch) {
  if (batch.rank() == 0) return "";
  return mx::detail::concat(" (matrix ", position_of(item, batch), " of a stack of shape ", batch, ')');
}

/// A matrix without inverse: `pivot` of its pivots, or of the elements of its diagonal, is 0.
inline std::string bad_pivot(const char* op, const char* what, int64_t pivot, int64_t item,
                             const Shape& batch) {
  return mx::detail::concat("[", op, "] expected invertible matrices, got one of which ", what, ' ', pivot,
                            " is 0", at_item(item, batch));
}

/// A matrix that is not positive definite, which shows at `pivot`.
inline std::string bad_leading_part(const char* op, int64_t pivot, int64_t item, const Shape& batch) {
  return mx::detail::concat("[", op, "] expected positive definite matrices, got one whose leading part of ",
                            pivot + 1, " rows and columns is not", at_item(item, batch));
}

/// A length of the inputs ("input") or of the labels ("target") of a sample.
inline std::string bad_ctc_length(const char* what, int64_t most, int64_t length, int64_t sample) {
  return mx::detail::concat("[ctc_loss] expected ", what, " lengths from 0 to ", most, ", got ", length,
                            " for sample ", sample);
}
inline std::string bad_ctc_total(int64_t total, int64_t labels) {
  return mx::detail::concat("[ctc_loss] expected as many labels as the sum of the target lengths, ", total,
                            ", got ", labels);
}
inline std::string bad_ctc_label(int64_t classes, int64_t blank, int64_t label, int64_t i, int64_t sample) {
  return mx::detail::concat("[ctc_loss] expected labels from 0 to ", classes - 1, " other than the blank ",
                            blank, ", got ", label, " as label ", i, " of sample ", sample);
}

/// The weights of a row of categorical: the largest logit, one weight, and their sum.
inline std::string bad_largest_logit(const char* op, double largest, int64_t row) {
  return mx::detail::concat("[", op, "] expected the largest logit of each row to be finite, got ", largest,
                            " in row ", row);
}
inline std::string bad_weight(const char* op, double weight, int64_t i, int64_t row) {
  return mx::detail::concat("[", op, "] expected finite weights of 0 or more, got ", weight, " at index ", i,
                            " of row ", row);
}
inline std::string bad_total_weight(const char* op, double total, int64_t row) {
  return mx::detail::concat("[", op, "] expected weights with a finite sum above 0, got ", total, " in row ",
                            row);
}

/// A mask with more true elements than the source of masked_scatter has elements.
inline std::string bad_mask_count(int64_t count, const Shape& source) {
  return mx::detail::concat("[masked_scatter] expected a source of at least ", count,
                            " elements, one for each true element of the mask, got shape ", source);
}

/// A row that a table of `size` rows does not have, at place k of the rows.
inline std::string bad_row(int64_t size, int64_t row, int64_t k) {
  return mx::detail::concat("[put_rows] expected rows from 0 to ", size - 1, ", got ", row, " at ", k);
}

}  // namespace mx::kernels::detail
