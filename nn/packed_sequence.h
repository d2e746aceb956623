// Sequences of several lengths in one batch: padded to one length, or packed without the padding.
//
//   auto packed = nn::pack_padded_sequence(x, {5, 2, 7}, {.enforce_sorted = false});
//   auto [y, state] = lstm(packed);
//   auto [padded, lengths] = nn::pad_packed_sequence(y);
//
// Names and meanings are those of torch.nn.utils.rnn. Lengths are numbers of the program, not arrays, because
// they decide about shapes. All functions are recorded, so gradients flow through them.
//
// Thread-safety: functions may be called by several threads at once; one PackedSequence as an NDArray.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "ndarray/ndarray.h"
#include "ndarray/scalar.h"

namespace mx::nn {

/// The rows of all steps one after the other, without padding. Step t has the rows of the batch_sizes[t]
/// longest sequences.
struct PackedSequence {
  NDArray data;                      ///< (rows, ..)
  std::vector<int64_t> batch_sizes;  ///< of each step; does not grow
  /// sorted_indices[i] is the sequence that stands at place i; empty if the order was not changed.
  std::vector<int64_t> sorted_indices{};

  int64_t batch() const { return batch_sizes.empty() ? 0 : batch_sizes[0]; }
  template <class V>
  void arrays(V&& visit) {
    visit(data);
  }
};

struct PackOptions {
  bool batch_first = false;
  /// True: lengths that grow are an error. False: the sequences are sorted by length, and results get the
  /// given order again.
  bool enforce_sorted = true;
};

/// Packs x (steps, batch, ..), or (batch, steps, ..) with batch_first. Throws InvalidArgument for another
/// number of lengths than sequences, for lengths below 1 or above the number of steps, and for unsorted
/// lengths with enforce_sorted.
PackedSequence pack_padded_sequence(const Arg& x, const std::vector<int64_t>& lengths,
                                    const PackOptions& options = {});
/// The same with the lengths in an array of integers; waits for it.
PackedSequence pack_padded_sequence(const Arg& x, const NDArray& lengths, const PackOptions& options = {});

struct PadPackedOptions {
  bool batch_first = false;
  Scalar padding_value = 0;
  std::optional<int64_t> total_length{};  ///< steps of the result; none: those of the longest sequence
};
/// Returns the padded sequences in their original order, and their lengths. Throws InvalidArgument for a
/// total_length below the longest sequence's.
std::pair<NDArray, std::vector<int64_t>> pad_packed_sequence(const PackedSequence& packed,
                                                             const PadPackedOptions& options = {});

struct PadOptions {
  bool batch_first = false;
  Scalar padding_value = 0;
};
/// Joins sequences (length, ..) to one array (longest, batch, ..). Throws InvalidArgument for no sequence and
/// for shapes and types that differ in more than the length.
NDArray pad_sequence(std::span<const NDArray> sequences, const PadOptions& options = {});
/// pack_padded_sequence() of sequences (length, ..), without padding them first.
PackedSequence pack_sequence(std::span<const NDArray> sequences, bool enforce_sorted = true);

namespace detail {
/// Indices as an array on a device.
NDArray index_array(const std::vector<int64_t>& indices, const Shape& shape, Context context);
/// The inverse of a permutation; empty for an empty one.
std::vector<int64_t> inverse_order(const std::vector<int64_t>& order);
}  // namespace detail

}  // namespace mx::nn
