#include "nn/data/image_file.h"

#include <algorithm>
#include <string_view>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "ndarray/io/atomic_file.h"
#include "ndarray/io/io_error.h"
#include "ndarray/io/mapped_file.h"
#include "nn/data/bad_records.h"

namespace mx::data {
namespace {

bool begins_with(io::Bytes file, std::string_view magic) {
  return file.size() >= magic.size() && std::memcmp(file.data(), magic.data(), magic.size()) == 0;
}

uint8_t gray_of(const uint8_t* rgb) {
  // 0.299, 0.587 and 0.114 in 65536ths, rounded.
  return static_cast<uint8_t>((rgb[0] * 19595u + rgb[1] * 38470u + rgb[2] * 7471u + 0x8000u) >> 16);
}

HostArray with_channels(HostArray image, int64_t wanted) {
  const int64_t have = image.size(2);
  if (wanted == 0) wanted = have == 2 ? 4 : have;
  if (wanted == have) return image;
  HostArray made({image.size(0), image.size(1), wanted}, u8);
  const uint8_t* from = image.data<uint8_t>();
  uint8_t* to = made.data<uint8_t>();
  const int64_t pixels = image.size(0) * image.size(1);
  for (int64_t i = 0; i < pixels; ++i, from += have, to += wanted) {
    const bool gray = have <= 2;
    if (wanted == 1) {
      to[0] = gray ? from[0] : gray_of(from);
      continue;
    }
    for (int64_t c = 0; c < 3; ++c) to[c] = from[gray ? 0 : c];
    if (wanted == 4) to[3] = have == 2 || have == 4 ? from[have - 1] : 255;
  }
  return made;
}

}  // namespace

namespace detail {

void check_pixels(uint64_t height, uint64_t width, int64_t max_pixels, const std::string& where) {
  MX_CHECK(height > 0 && width > 0, FormatError, where, ": expected an image with pixels, got ", height,
           " x ", width);
  MX_CHECK(width <= static_cast<uint64_t>(max_pixels) / height, FormatError, where, ": expected at most ",
           max_pixels, " pixels (ImageOptions::max_pixels), got ", height, " x ", width);
}

void check_encodable(const HostArray& image, int64_t most_channels, const char* op) {
  MX_CHECK(
      image.dtype() == u8 && image.rank() == 3 && image.numel() > 0 &&
          (image.size(2) == 1 || image.size(2) == 3 || image.size(2) == 4) && image.size(2) <= most_channels,
      InvalidArgument, "[", op, "] expected an image in u8 (height, width, 1 or 3",
      most_channels == 4 ? " or 4" : "", ") with pixels, got ", image.dtype(), " of shape ", image.shape());
}

}  // namespace detail

bool is_jpeg(io::Bytes file) { return begins_with(file, "\xff\xd8\xff"); }
bool is_png(io::Bytes file) { return begins_with(file, "\x89PNG\r\n\x1a\n"); }

HostArray decode_image(io::Bytes file, const std::string& where, const ImageOptions& options) {
  MX_CHECK(options.channels == 0 || options.channels == 1 || options.channels == 3 || options.channels == 4,
           InvalidArgument, "[image] expected 0, 1, 3 or 4 channels, got ", int64_t{options.channels});
  MX_CHECK(options.max_pixels > 0, InvalidArgument, "[image] expected a limit of pixels above 0, got ",
           int64_t{options.max_pixels});
  MX_CHECK(is_jpeg(file) || is_png(file), FormatError, where,
           ": expected an image in JPEG or PNG format, got ",
           file.empty() ? "no bytes" : "a file with another beginning");
  return with_channels(is_jpeg(file) ? detail::decode_jpeg(file, where, options.max_pixels)
                                     : detail::decode_png(file, where, options.max_pixels),
                       options.channels);
}

HostArray read_image(const std::string& path, const ImageOptions& options) {
  const io::MappedFile file(path);
  return decode_image(file.bytes(), detail::place("image", path), options);
}

void write_image(const std::string& path, const HostArray& image, int quality) {
  const auto ends_with = [&](std::string_view end) {
    return path.size() >= end.size() &&
           std::equal(end.rbegin(), end.rend(), path.rbegin(),
                      [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? b - 'A' + 'a' : b); });
  };
  const bool png = ends_with(".png");
  MX_CHECK(png || ends_with(".jpg") || ends_with(".jpeg"), InvalidArgument,
           "[write_image] expected a file name that ends in .png, .jpg or .jpeg, got '", path, "'");
  const std::string bytes = png ? encode_png(image) : encode_jpeg(image, quality);
  io::AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

void write_image(const std::string& path, const NDArray& image, int quality, std::source_location where) try {
  write_image(path, to_host_array(image, where), quality);
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

}  // namespace mx::data
