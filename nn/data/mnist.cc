#include "nn/data/mnist.h"

#include <cstdint>
#include <filesystem>
#include <system_error>

#include "engine/base/check.h"
#include "ndarray/io/io_error.h"
#include "nn/data/idx.h"
#include "operators/elementwise_binary.h"

namespace mx::data {
namespace {

constexpr int64_t kSide = 28, kClasses = 10;

struct File {
  std::string path;
  NDArray array;
};

File read(const std::string& base, int rank) {
  std::error_code ignored;
  const bool plain =
      !std::filesystem::exists(base + ".gz", ignored) && std::filesystem::exists(base, ignored);
  const std::string path = plain ? base : base + ".gz";
  const NDArray array = read_idx(path);
  MX_CHECK(array.dtype() == u8 && array.rank() == rank, FormatError, "[mnist] '", path,
           "': expected bytes in ", rank, rank == 1 ? " dimension" : " dimensions", ", got ", array.dtype(),
           " of shape ", array.shape());
  return {path, array};
}

}  // namespace

ArrayDataset mnist(const std::string& folder, Split split, const MnistOptions& options) {
  MX_CHECK(checked_numel(options.shape, 4, "mnist") == kSide * kSide, InvalidArgument,
           "[mnist] expected a shape of ", kSide * kSide, " elements for an image, got ", options.shape);
  const std::string base = folder + (split == Split::train ? "/train" : "/t10k");
  const File images = read(base + "-images-idx3-ubyte", 3), labels = read(base + "-labels-idx1-ubyte", 1);
  const int64_t n = images.array.size(0);
  MX_CHECK(images.array.size(1) == kSide && images.array.size(2) == kSide, FormatError, "[mnist] '",
           images.path, "': expected images of ", kSide, " x ", kSide, ", got shape ", images.array.shape());
  MX_CHECK(labels.array.size(0) == n, FormatError, "[mnist] '", labels.path,
           "': expected as many labels as images, got ", labels.array.size(0), " and ", n);
  const uint8_t* const label = labels.array.data<uint8_t>();
  for (int64_t i = 0; i < n; ++i)
    MX_CHECK(label[i] < kClasses, FormatError, "[mnist] '", labels.path, "': expected labels from 0 to ",
             kClasses - 1, ", got ", static_cast<int>(label[i]), " at position ", i);
  Shape shape = options.shape;
  shape.insert(0, n);
  NDArray pixels = images.array.to(f32);
  pixels /= 255.f;
  return ArrayDataset({pixels.reshape(shape), labels.array.to(i64)});
}

}  // namespace mx::data
