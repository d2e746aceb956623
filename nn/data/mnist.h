// The MNIST digits.
// Format: http://yann.lecun.com/exdb/mnist/
#pragma once

#include <string>

#include "nn/data/dataset.h"

namespace mx::data {

enum class Split { train, test };

struct MnistOptions {
  /// The shape of one image, 784 elements: {784}, {28, 28} for transforms, {1, 28, 28} for convolutions.
  Shape shape = {784};
};

/// Returns images, f32 from 0 to 1, (n,) + options.shape, and labels, i64 (n,), 0 to 9. Reads
/// FOLDER/train-images-idx3-ubyte.gz and FOLDER/train-labels-idx1-ubyte.gz (t10k-... for the test set), or
/// the files without ".gz" if those do not exist. Data sets with the same format and file names, such as
/// Fashion-MNIST, are read as well.
///
/// Throws FileError and FormatError, naming the file, and InvalidArgument if options.shape does not have 784
/// elements.
ArrayDataset mnist(const std::string& folder, Split split, const MnistOptions& options = {});

}  // namespace mx::data
