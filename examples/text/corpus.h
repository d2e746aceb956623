// Corpus: a text as numbers of its characters, split into a part to train on and a part to validate with.
#pragma once

#include <cstdint>
#include <string>

#include "ndarray/ndarray.h"

namespace mx::examples {

class Corpus {
 public:
  /// Reads a text file, which may be compressed with gzip. The characters are its different bytes, in order.
  /// The first 90% are for training. `most` > 0: uses only so many bytes. Throws FileError, FormatError, and
  /// InvalidArgument for a text of fewer than 100 bytes.
  explicit Corpus(const std::string& path, int64_t most = 0);

  int64_t characters() const { return static_cast<int64_t>(alphabet_.size()); }
  const std::string& alphabet() const { return alphabet_; }
  /// The numbers of the characters, i64 (size,).
  const NDArray& train() const { return train_; }
  const NDArray& validation() const { return validation_; }

  /// Arranges numbers in `count` streams of equal length, side by side: (length, count). Stream i is the i-th
  /// part of them; the rest is left out. Throws InvalidArgument for streams of fewer than 2 characters.
  static NDArray streams(const NDArray& numbers, int64_t count);

 private:
  std::string alphabet_;
  NDArray train_, validation_;
};

}  // namespace mx::examples
