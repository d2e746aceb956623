// Collate functions: make the arrays of a batch from its samples.
//
//   data::SampleDataset set(source, {.collate = data::pad({.value = -1, .lengths = true})});
//
// They run in the engine, and keep no state: any thread may call one. They throw InvalidArgument, naming the
// field and the sample's place in the batch, if the samples do not fit together.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "nn/data/host_array.h"

namespace mx::data {

/// Returns the fields of the batch. `samples` is not empty; every sample has the same number of fields.
using Collate = std::function<Sample(std::vector<Sample>&& samples)>;

/// Stacks each field along a new first dimension: all samples must have the same shapes and types.
Collate stack();

struct PadOptions {
  double value = 0;      ///< of the elements that are added
  bool lengths = false;  ///< adds a field i64 (n,): each sample's size in the first dimension of field 0
  /// The first size, and every other one that differs, is rounded up to a multiple of this, so that few
  /// shapes occur.
  IntArg multiple = 1;
  /// The fields to pad; the others are stacked. Empty: all.
  std::vector<int64_t> fields{};
};
/// Enlarges each dimension of a field, at its end, to the largest one in the batch, then stacks. Types and
/// ranks must be equal.
Collate pad(const PadOptions& options = {});

/// Joins each field along its first dimension, and adds a field i64 (n + 1,) with the offsets: sample i is in
/// rows offsets[i] to offsets[i + 1] - 1 of field 0. For sets of boxes, graphs and packed sequences. Fields
/// of rank 0 are stacked. Fields other than the first may have other numbers of rows.
Collate join();

}  // namespace mx::data
