// The MNIST digits.
// Format: http://yann.lecun.com/exdb/mnist/
#pragma once

#include <string>

#include "nn/data/dataset.h"

namespace mx::data {

enum class Split { train, test };

struct MnistOptions {
  /// Of one image, 784 elements in all: {784}, {28, 28} for transforms, {1, 28, 28} for convolutions.
  Shape shape = {784};
};

/// Images, f32 from 0 to 1, (n,) + options.shape, and labels, i64 (n,), 0 to 9. Reads
/// FOLDER/train-images-idx3-ubyte.gz and FOLDER/train-labels-idx1-ubyte.gz (for the test set t10k-...), or
/// the files without ".gz" where those are not there. Sets in the same format with the same names, such as
/// Fashion-MNIST, are read as well.
///
/// Throws FileError and FormatError, naming the file, and InvalidArgument for another number of elements.
ArrayDataset mnist(const std::string& folder, Split split, const MnistOptions& options = {});

}  // namespace mx::data
