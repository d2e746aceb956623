// Checksums of arrays, compared between all workers: for KVStore::check_equal(). Internal.
//
// Thread-safety: one thread at a time for one table.
#pragma once

#include <cstdint>
#include <exception>
#include <source_location>
#include <string>
#include <vector>

#include "kvstore/kvstore.h"
#include "ndarray/ndarray.h"

namespace mx::detail {

/// The checksums of all ranks: those of rank r begin at r * keys.
struct ChecksumTable {
  std::vector<std::string> keys;
  /// Contiguous copies on the CPU. Operations that the engine runs for the check must not hand out the
  /// variables of the parameters (NDArray::var()).
  std::vector<NDArray> values;
  std::vector<uint64_t> sums;

  /// All sums are 0.
  ChecksumTable(const std::vector<KVKey>& of, const std::vector<NDArray>& arrays, int ranks,
                std::source_location where);

  /// Computes the sums of one rank, returns the place of the first one, and lets go of the values. Only for
  /// running operations that read the values.
  uint64_t* add(int rank);
  /// Returns the error for the first key whose checksums differ, or null.
  std::exception_ptr error() const;
};

}  // namespace mx::detail
