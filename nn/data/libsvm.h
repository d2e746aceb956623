// Reads sparse data in the text format of LibSVM, plain or compressed with gzip: one sample per line,
// "LABEL INDEX:VALUE INDEX:VALUE ... # comment".
//
//   data::SparseTable table = data::read_libsvm("a9a.txt");
//   data::ArrayDataset dense({table.dense(), table.labels});
//   data::SampleDataset sparse(data::sparse_source(table), {.collate = data::join()});
//
// Indices must ascend within a line. An index that is below the first one or does not ascend, a number that
// cannot be read, and a value or label that is too large for f32 are a FormatError that names the file, the
// line and the byte offset of the line. "inf" and "nan" are values; one that is too small for f32 is 0.
#pragma once

#include <cstdint>
#include <string>

#include "ndarray/io/byte_sink.h"
#include "ndarray/ndarray.h"
#include "nn/data/sample_dataset.h"

namespace mx::data {

struct LibsvmOptions {
  bool zero_based = false;  ///< the first index is 0 and not 1
  IntArg columns = 0;       ///< the number of columns; a larger index is an error. 0: as many as are used
  BadSamples bad = BadSamples::fail;
  OnSkip on_skip = log_skipped;
  /// The largest number of bytes that a compressed file may decompress to.
  uint64_t max_inflated_bytes = uint64_t{1} << 32;
};

/// A matrix in compressed rows: row i has values[offsets[i]] to values[offsets[i + 1] - 1], in the columns
/// with the same places in `indices`. The functions throw InvalidArgument for parts that do not belong
/// together.
struct SparseTable {
  NDArray labels;   ///< f32 (rows,)
  NDArray offsets;  ///< i64 (rows + 1,)
  NDArray indices;  ///< i64 (entries,): columns, from 0, ascending in each row
  NDArray values;   ///< f32 (entries,)
  int64_t rows = 0, columns = 0;

  /// Returns the matrix, f32 (rows, columns). Throws OutOfMemory if it does not fit.
  NDArray dense() const;
};

/// `path` is for messages.
SparseTable parse_libsvm(io::Bytes text, const std::string& path, const LibsvmOptions& options = {});
SparseTable read_libsvm(const std::string& path, const LibsvmOptions& options = {});
/// Replaces a file as a whole. Throws FileError.
void write_libsvm(const std::string& path, const SparseTable& table, bool zero_based = false);

/// Samples (indices, values, label) with the names "indices", "values" and "label"; join() makes compressed
/// rows of a batch. Waits for the table's values.
SourceHandle sparse_source(const SparseTable& table);

}  // namespace mx::data
