// The CIFAR-10 and CIFAR-100 images in their binary format.
// Format: https://www.cs.toronto.edu/~kriz/cifar.html ("Binary version").
//
// A record is one byte for the label (CIFAR-100: one for the coarse and one for the fine label), then 3072
// bytes: the red, green and blue planes of 32 x 32 pixels.
#pragma once

#include <cstdint>
#include <string>

#include "ndarray/io/byte_sink.h"
#include "nn/data/dataset.h"
#include "nn/data/mnist.h"
#include "nn/data/sample_dataset.h"

namespace mx::data {

enum class CifarKind { cifar10, cifar100 };

struct CifarOptions {
  /// Leaves the images as bytes, u8 from 0 to 255, which need a quarter of the memory; to_float() converts a
  /// batch.
  bool as_bytes = false;
  BadSamples bad = BadSamples::fail;
  OnSkip on_skip = log_skipped;
};

/// Return "image", f32 from 0 to 1 (n, 3, 32, 32), and "label", i64 (n,); for CIFAR-100 the fine label, and
/// "coarse" as third array. Read FOLDER/data_batch_1.bin to data_batch_5.bin, or test_batch.bin; for
/// CIFAR-100 FOLDER/train.bin or test.bin. Throw FileError, and FormatError, naming file and offset, for a
/// file that ends inside a record and for labels out of range.
ArrayDataset cifar10(const std::string& folder, Split split, const CifarOptions& options = {});
ArrayDataset cifar100(const std::string& folder, Split split, const CifarOptions& options = {});

/// The same for the bytes of one file. `path` is for messages.
ArrayDataset parse_cifar(io::Bytes file, const std::string& path, CifarKind kind,
                         const CifarOptions& options = {});

}  // namespace mx::data
