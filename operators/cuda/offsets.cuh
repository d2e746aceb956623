// Offsets of segments, or of the rows of a sparse matrix, and its columns: notes those that the CPU refuses,
// with its messages.
//
//   const EntryCheck check{offsets, entries, &columns, width};
//   BadValues bad(args, bad_entries("csr_matmul", "row pointers", check));
//   note_bad_entries(args, check, bad.word());
//   bad.check();
#pragma once

#include <algorithm>
#include <cstdint>

#include "ndarray/cuda/kernel_errors.cuh"
#include "operators/cuda/group.cuh"
#include "operators/cuda/search.cuh"
#include "operators/kernels/bad_values.h"

namespace mx::cuda {

/// The arrays to check: offsets must ascend from 0 to the number of entries, columns must lie in [0, width).
struct EntryCheck {
  const Tensor& offsets;
  int64_t entries;
  const Tensor* columns = nullptr;  ///< null: there are none
  int64_t width = 0;
};

/// The places of errors: offset i at i, the end of the last one behind them, and then the columns.
inline __global__ void __launch_bounds__(kBlock)
    check_entries(Integers offsets, int64_t entries, Integers columns, int64_t width, KernelError* bad) {
  const int64_t n = offsets.count > columns.count ? offsets.count : columns.count;
  for (int64_t i = global_index(); i < n; i += global_size()) {
    if (i < offsets.count) {
      const int64_t offset = offsets[i], before = i > 0 ? offsets[i - 1] : 0;
      if (i > 0 ? before > offset : offset != 0) note_error(bad, i, offset, before);
      if (i == offsets.count - 1 && offset != entries) note_error(bad, i + 1, offset);
    }
    if (i < columns.count) {
      const int64_t column = columns[i];
      if (column < 0 || column >= width) note_error(bad, offsets.count + 1 + i, column);
    }
  }
}

inline void note_bad_entries(const KernelArgs& args, const EntryCheck& check, KernelError* bad) {
  Integers columns(check.columns != nullptr ? *check.columns : check.offsets);
  if (check.columns == nullptr) columns.count = 0;
  const Integers offsets(check.offsets);
  launch(stream_of(args), blocks_for(std::max(offsets.count, columns.count), kBlock, 1 << 16), kBlock, 0,
         check_entries, offsets, check.entries, columns, check.width, bad);
}

/// The messages of the errors. `what` names the offsets.
inline BadValues::Text bad_entries(const char* op, const char* what, const EntryCheck& check) {
  return [op, what, entries = check.entries, count = check.offsets.shape[0],
          columns = check.columns != nullptr ? check.columns->shape[0] : 0,
          width = check.width](const KernelError& e) {
    if (e.place == 0) return kernels::detail::bad_first_offset(op, what, e.value);
    if (e.place < count) return kernels::detail::bad_order(op, what, e.other, e.value, e.place);
    if (e.place == count) return kernels::detail::bad_last_offset(op, what, entries, e.value);
    if (width == 0) return kernels::detail::no_place_for_indices(op, 1, columns);
    return kernels::detail::bad_index(op, 0, width, 1, e.value, {e.place - count - 1});
  };
}

}  // namespace mx::cuda
