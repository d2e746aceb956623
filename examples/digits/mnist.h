// The MNIST digits, from IDX files compressed with gzip.
// Format: http://yann.lecun.com/exdb/mnist/
#pragma once

#include <string>

#include "ndarray/ndarray.h"

namespace digits {

struct Digits {
  mx::NDArray images;  ///< (n, 784) f32, from 0 to 1
  mx::NDArray labels;  ///< (n,) i64, 0 to 9
};

/// Reads FOLDER/SET-images-idx3-ubyte.gz and FOLDER/SET-labels-idx1-ubyte.gz; SET is "train" or "t10k".
/// Throws FileError and FormatError, naming the file.
Digits load_mnist(const std::string& folder, const std::string& set);

}  // namespace digits
