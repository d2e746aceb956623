// The citation graph Cora: 2,708 papers, their words, and which cites which.
#pragma once

#include <cstdint>
#include <string>

#include "operators/sparse_csr.h"

namespace mx::examples {

struct Cora {
  SparseCSR words;                  ///< (papers, 1433): the words of each paper; each row sums to 1
  SparseCSR graph;                  ///< (papers, papers): 1 where one of the two cites the other
  NDArray classes;                  ///< i64 (papers,), 0 to 6
  NDArray train, validation, test;  ///< i64: the papers of each part of the public split

  static constexpr int64_t kWords = 1433, kClasses = 7;
};

/// Reads nodes.txt.gz and edges.txt.gz of a folder. Throws FileError if a file cannot be read, and
/// FormatError, which names the file and the line, for other contents.
Cora read_cora(const std::string& folder);

}  // namespace mx::examples
