#include "examples/support/picture.h"

#include <algorithm>
#include <span>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/io/atomic_file.h"
#include "nn/training/png.h"

namespace mx::examples {

void write_sheet(const std::string& path, const NDArray& images, int64_t columns) {
  MX_CHECK(images.rank() == 4 && images.size(1) == 1 && columns > 0 && images.size(0) % columns == 0,
           InvalidArgument, "[write_sheet] expected images (n, 1, height, width), n a multiple of ", columns,
           ", got shape ", images.shape());
  const int64_t height = images.size(2), width = images.size(3), rows = images.size(0) / columns;
  const std::vector<float> values = images.to(f32).to_vector<float>();
  std::vector<uint8_t> sheet(values.size());
  for (int64_t row = 0; row < rows * height; ++row) {
    for (int64_t column = 0; column < columns * width; ++column) {
      const int64_t image = row / height * columns + column / width;
      const float value =
          values[static_cast<size_t>((image * height + row % height) * width + column % width)];
      const float limited = value > 0 ? std::min(value, 1.f) : 0;  // NaN is black
      sheet[static_cast<size_t>(row * columns * width + column)] = static_cast<uint8_t>(255 * limited + 0.5f);
    }
  }
  const std::string png = training::detail::encode_png(sheet, rows * height, columns * width, 1);
  io::AtomicFile file(path);
  file.write(std::as_bytes(std::span(png)));
  file.commit();
}

}  // namespace mx::examples
