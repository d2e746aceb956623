// Transforms that move pixels: windows, resizing, mirroring. Each is a chain of three primitive steps, which
// are applied to the image, its masks and its boxes.
#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/check.h"
#include "ndarray/kernels/copy.h"
#include "nn/data/image_ops.h"

namespace mx::data {
namespace {

HostArray& field_of(Sample& sample, size_t field, const char* op) {
  MX_CHECK(field < sample.size(), InvalidArgument, "[", op, "] expected a field below ", sample.size(),
           ", got ", field);
  return sample[field];
}

HostArray& image_of(Sample& sample, size_t field, const char* op) {
  HostArray& image = field_of(sample, field, op);
  MX_CHECK(image.rank() == 3 && image.numel() > 0 && (image.dtype() == u8 || image.dtype() == f32),
           InvalidArgument, "[", op,
           "] expected an image (height, width, channels) with pixels, u8 or f32, got ", image.dtype(),
           " of shape ", image.shape());
  detail::check_channels_last(image, op);
  return image;
}

HostArray& mask_of(Sample& sample, size_t field, const HostArray& image, const char* op) {
  HostArray& mask = field_of(sample, field, op);
  MX_CHECK((mask.rank() == 2 || mask.rank() == 3) && mask.size(0) == image.size(0) &&
               mask.size(1) == image.size(1),
           InvalidArgument, "[", op, "] expected a mask (", image.size(0), ", ", image.size(1),
           "), as large as the image, got shape ", mask.shape());
  return mask;
}

HostArray& boxes_of(Sample& sample, size_t field, const char* op) {
  HostArray& boxes = field_of(sample, field, op);
  MX_CHECK(boxes.dtype() == f32 && boxes.rank() == 2 && boxes.size(1) == 4, InvalidArgument, "[", op,
           "] expected boxes (k, 4) in f32, got ", boxes.dtype(), " of shape ", boxes.shape());
  return boxes;
}

struct Window {
  int64_t top = 0, left = 0, height = 0, width = 0;
};

size_t pixel_bytes(const HostArray& plane) {
  return static_cast<size_t>(plane.rank() == 3 ? plane.size(2) : 1) * size_of(plane.dtype());
}

HostArray of_size(const HostArray& plane, int64_t height, int64_t width) {
  Shape shape = plane.shape();
  shape[0] = height;
  shape[1] = width;
  return HostArray(shape, plane.dtype());
}

HostArray windowed(const HostArray& plane, const Window& window, double fill) {
  HostArray made = of_size(plane, window.height, window.width);
  if (fill != 0) mx::kernels::fill(made.tensor(), Scalar(fill));
  const int64_t top = std::max<int64_t>(0, window.top), left = std::max<int64_t>(0, window.left);
  const int64_t bottom = std::min(plane.size(0), window.top + window.height);
  const int64_t right = std::min(plane.size(1), window.left + window.width);
  const size_t pixel = pixel_bytes(plane);
  if (left >= right) return made;
  for (int64_t y = top; y < bottom; ++y)
    std::memcpy(
        made.raw() + static_cast<size_t>((y - window.top) * window.width + left - window.left) * pixel,
        plane.raw() + static_cast<size_t>(y * plane.size(1) + left) * pixel,
        static_cast<size_t>(right - left) * pixel);
  return made;
}

HostArray nearest(const HostArray& plane, int64_t height, int64_t width) {
  HostArray made = of_size(plane, height, width);
  const size_t pixel = pixel_bytes(plane);
  const auto source = [](int64_t i, int64_t from, int64_t to) {
    return std::min(from - 1, static_cast<int64_t>((static_cast<double>(i) + 0.5) *
                                                   static_cast<double>(from) / static_cast<double>(to)));
  };
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      std::memcpy(made.raw() + static_cast<size_t>(y * width + x) * pixel,
                  plane.raw() + static_cast<size_t>(source(y, plane.size(0), height) * plane.size(1) +
                                                    source(x, plane.size(1), width)) *
                                    pixel,
                  pixel);
  return made;
}

void mirror(HostArray& plane, bool vertical) {
  const int64_t height = plane.size(0), width = plane.size(1);
  const size_t pixel = pixel_bytes(plane), row = static_cast<size_t>(width) * pixel;
  std::byte* const at = plane.raw();
  if (vertical) {
    for (int64_t y = 0; y < height / 2; ++y)
      std::swap_ranges(at + static_cast<size_t>(y) * row, at + static_cast<size_t>(y + 1) * row,
                       at + static_cast<size_t>(height - 1 - y) * row);
    return;
  }
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width / 2; ++x) {
      std::byte* const a = at + static_cast<size_t>(y) * row + static_cast<size_t>(x) * pixel;
      std::swap_ranges(a, a + pixel,
                       at + static_cast<size_t>(y) * row + static_cast<size_t>(width - 1 - x) * pixel);
    }
}

void apply_window(Sample& sample, const Window& window, double fill, const ImageFields& fields,
                  const char* op) {
  HostArray& image = image_of(sample, fields.image, op);
  for (size_t field : fields.masks) {
    HostArray& mask = mask_of(sample, field, image, op);
    mask = windowed(mask, window, 0);
  }
  for (size_t field : fields.boxes) {
    HostArray& boxes = boxes_of(sample, field, op);
    float* const at = boxes.data<float>();
    for (int64_t i = 0; i < boxes.numel(); ++i) {
      const bool x = i % 2 == 0;
      at[i] = std::clamp(at[i] - static_cast<float>(x ? window.left : window.top), 0.f,
                         static_cast<float>(x ? window.width : window.height));
    }
  }
  image = windowed(image, window, fill);
}

void apply_resize(Sample& sample, int64_t height, int64_t width, const ImageFields& fields, const char* op) {
  HostArray& image = image_of(sample, fields.image, op);
  for (size_t field : fields.masks) {
    HostArray& mask = mask_of(sample, field, image, op);
    mask = nearest(mask, height, width);
  }
  const float y_scale = static_cast<float>(height) / static_cast<float>(image.size(0));
  const float x_scale = static_cast<float>(width) / static_cast<float>(image.size(1));
  for (size_t field : fields.boxes) {
    HostArray& boxes = boxes_of(sample, field, op);
    for (int64_t i = 0; i < boxes.numel(); ++i) boxes.data<float>()[i] *= i % 2 == 0 ? x_scale : y_scale;
  }
  image = resized(image, height, width);
}

void apply_mirror(Sample& sample, bool vertical, const ImageFields& fields, const char* op) {
  HostArray& image = image_of(sample, fields.image, op);
  for (size_t field : fields.masks) mirror(mask_of(sample, field, image, op), vertical);
  const auto side = static_cast<float>(image.size(vertical ? 0 : 1));
  for (size_t field : fields.boxes) {
    HostArray& boxes = boxes_of(sample, field, op);
    for (int64_t i = 0; i < boxes.size(0); ++i) {
      float* const box = boxes.data<float>() + 4 * i + (vertical ? 1 : 0);
      const float low = side - box[2];
      box[2] = side - box[0];
      box[0] = low;
    }
  }
  mirror(image, vertical);
}

void check_side(int64_t height, int64_t width, const char* op) {
  constexpr int64_t kMostSide = 1 << 20;
  MX_CHECK(height > 0 && width > 0 && height <= kMostSide && width <= kMostSide, InvalidArgument, "[", op,
           "] expected sides from 1 to ", kMostSide, " pixels, got ", height, " x ", width);
}

SampleTransform mirrored(double probability, bool vertical, const ImageFields& fields, const char* op) {
  MX_CHECK(probability >= 0 && probability <= 1, InvalidArgument, "[", op,
           "] expected a probability from 0 to 1, got ", probability);
  return [=](Sample& sample, SampleRandom& random) {
    if (random.uniform() < probability) apply_mirror(sample, vertical, fields, op);
  };
}

}  // namespace

void detail::check_channels_last(const HostArray& image, const char* op) {
  const int64_t first = image.size(0), last = image.size(2);
  MX_CHECK((first != 1 && first != 3 && first != 4) || last <= 4, InvalidArgument, "[", op,
           "] expected an image (height, width, channels), got shape ", image.shape(),
           ", which looks like (channels, height, width) (did channels_first() come before?)");
}

SampleTransform crop(int64_t top, int64_t left, int64_t height, int64_t width, double fill,
                     const ImageFields& fields) {
  check_side(height, width, "crop");
  constexpr int64_t kFarthest = 1 << 30;
  MX_CHECK(top >= -kFarthest && top <= kFarthest && left >= -kFarthest && left <= kFarthest, InvalidArgument,
           "[crop] expected a corner within 2^30 pixels, got ", top, " and ", left);
  return [=](Sample& sample, SampleRandom&) {
    apply_window(sample, {top, left, height, width}, fill, fields, "crop");
  };
}

SampleTransform center_crop(int64_t height, int64_t width, double fill, const ImageFields& fields) {
  check_side(height, width, "center_crop");
  return [=](Sample& sample, SampleRandom&) {
    const HostArray& image = image_of(sample, fields.image, "center_crop");
    // The difference is halved towards minus infinity, so that a larger window is placed as a smaller one is.
    const auto half = [](int64_t difference) { return difference >> 1; };
    apply_window(sample, {half(image.size(0) - height), half(image.size(1) - width), height, width}, fill,
                 fields, "center_crop");
  };
}

SampleTransform random_crop(int64_t height, int64_t width, int64_t padding, double fill,
                            const ImageFields& fields) {
  check_side(height, width, "random_crop");
  MX_CHECK(padding >= 0 && padding <= 1 << 20, InvalidArgument,
           "[random_crop] expected a padding from 0 to 2^20 pixels, got ", padding);
  return [=](Sample& sample, SampleRandom& random) {
    const HostArray& image = image_of(sample, fields.image, "random_crop");
    const int64_t down = image.size(0) + 2 * padding - height, across = image.size(1) + 2 * padding - width;
    MX_CHECK(down >= 0 && across >= 0, InvalidArgument, "[random_crop] expected images of at least ", height,
             " x ", width, " pixels with a padding of ", padding, ", got shape ", image.shape());
    const int64_t top = random.below(down + 1) - padding, left = random.below(across + 1) - padding;
    apply_window(sample, {top, left, height, width}, fill, fields, "random_crop");
  };
}

SampleTransform pad_image(int64_t height, int64_t width, double fill, const ImageFields& fields) {
  check_side(height, width, "pad_image");
  return [=](Sample& sample, SampleRandom&) {
    const HostArray& image = image_of(sample, fields.image, "pad_image");
    apply_window(sample, {0, 0, std::max(height, image.size(0)), std::max(width, image.size(1))}, fill,
                 fields, "pad_image");
  };
}

SampleTransform resize(int64_t height, int64_t width, const ImageFields& fields) {
  check_side(height, width, "resize");
  return [=](Sample& sample, SampleRandom&) { apply_resize(sample, height, width, fields, "resize"); };
}

SampleTransform resize_shorter(int64_t side, const ImageFields& fields) {
  check_side(side, side, "resize_shorter");
  return [=](Sample& sample, SampleRandom&) {
    const HostArray& image = image_of(sample, fields.image, "resize_shorter");
    const int64_t height = image.size(0), width = image.size(1), shorter = std::min(height, width);
    // The longer side is rounded down, as torchvision does.
    apply_resize(sample, height * side / shorter, width * side / shorter, fields, "resize_shorter");
  };
}

SampleTransform random_resized_crop(int64_t height, int64_t width, const ResizedCropOptions& o,
                                    const ImageFields& fields) {
  check_side(height, width, "random_resized_crop");
  MX_CHECK(o.min_area > 0 && o.min_area <= o.max_area && o.max_area <= 1 && o.min_aspect > 0 &&
               o.min_aspect <= o.max_aspect && std::isfinite(o.max_aspect),
           InvalidArgument, "[random_resized_crop] expected 0 < min_area <= max_area <= 1 and ",
           "0 < min_aspect <= max_aspect, got areas ", o.min_area, " and ", o.max_area, ", aspects ",
           o.min_aspect, " and ", o.max_aspect);
  return [=](Sample& sample, SampleRandom& random) {
    const HostArray& image = image_of(sample, fields.image, "random_resized_crop");
    const int64_t rows = image.size(0), columns = image.size(1);
    Window window;
    bool found = false;
    for (int attempt = 0; attempt < 10 && !found; ++attempt) {
      const double area = random.uniform(o.min_area, o.max_area) * static_cast<double>(rows * columns);
      const double aspect = std::exp(random.uniform(std::log(o.min_aspect), std::log(o.max_aspect)));
      window.height = std::llround(std::sqrt(area / aspect));
      window.width = std::llround(std::sqrt(area * aspect));
      found = window.height > 0 && window.width > 0 && window.height <= rows && window.width <= columns;
      if (!found) continue;
      window.top = random.below(rows - window.height + 1);
      window.left = random.below(columns - window.width + 1);
    }
    if (!found) {  // the largest window in the middle whose proportions are allowed
      const double aspect =
          std::clamp(static_cast<double>(columns) / static_cast<double>(rows), o.min_aspect, o.max_aspect);
      const double largest = std::min(static_cast<double>(rows), static_cast<double>(columns) / aspect);
      window.height = std::clamp<int64_t>(std::llround(largest), 1, rows);
      window.width = std::clamp<int64_t>(std::llround(largest * aspect), 1, columns);
      window.top = (rows - window.height) / 2;
      window.left = (columns - window.width) / 2;
    }
    apply_window(sample, window, 0, fields, "random_resized_crop");
    apply_resize(sample, height, width, fields, "random_resized_crop");
  };
}

SampleTransform flip(double probability, const ImageFields& fields) {
  return mirrored(probability, false, fields, "flip");
}

SampleTransform flip_vertical(double probability, const ImageFields& fields) {
  return mirrored(probability, true, fields, "flip_vertical");
}

}  // namespace mx::data
