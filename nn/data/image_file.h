// Decodes and encodes images in JPEG and PNG format, through libjpeg-turbo and libpng.
//
//   data::HostArray image = data::read_image("cat.jpg");     // u8 (height, width, 3)
//
// An image is u8 (height, width, channels): 1 channel is gray, 3 are red, green and blue, 4 have alpha as the
// last. Samples of 16 bits keep their upper 8. Colour profiles, gamma and orientation marks are not applied.
// Errors are FormatError, with the reason of the library; an image that ends early or has damaged data is an
// error, as is one with more pixels than the limit. Any thread may call the functions, at the same time.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>

#include "ndarray/io/byte_sink.h"
#include "nn/data/host_array.h"

namespace mx::data {

struct ImageOptions {
  /// 1, 3 or 4: the image is converted. Gray is 0.299 R + 0.587 G + 0.114 B; alpha is dropped, or 255 if
  /// there is none. 0: as in the file; gray with alpha becomes 4 channels.
  IntArg channels = 3;
  /// The largest number of pixels. It is checked before memory is allocated.
  IntArg max_pixels = int64_t{1} << 27;
};

/// Returns whether the bytes begin as a JPEG or PNG file does.
bool is_jpeg(io::Bytes file);
bool is_png(io::Bytes file);

/// Decodes a file in memory, JPEG or PNG by its first bytes. Messages begin with `where`, such as
/// "[image] 'a.png'".
HostArray decode_image(io::Bytes file, const std::string& where, const ImageOptions& options = {});
/// Throws FileError as well.
HostArray read_image(const std::string& path, const ImageOptions& options = {});

/// Return the bytes of a file. Throw InvalidArgument unless the image is u8 with 1 or 3 channels (PNG: also
/// 4) and not empty, and for a quality that is not 1 to 100.
std::string encode_jpeg(const HostArray& image, int quality = 90);
std::string encode_png(const HostArray& image);
/// Writes a file in the format of its extension: .jpg, .jpeg or .png. The file is replaced as a whole.
void write_image(const std::string& path, const HostArray& image, int quality = 90);
/// The same for an array on any device; waits for its values. An image of a network, f32 (channels, height,
/// width) from 0 to 1, is (x * 255).clamp(0, 255).round().to(u8).transpose({1, 2, 0}).
void write_image(const std::string& path, const NDArray& image, int quality = 90,
                 std::source_location where = std::source_location::current());

namespace detail {
HostArray decode_jpeg(io::Bytes file, const std::string& where, int64_t max_pixels);
HostArray decode_png(io::Bytes file, const std::string& where, int64_t max_pixels);
void check_pixels(uint64_t height, uint64_t width, int64_t max_pixels, const std::string& where);
void check_encodable(const HostArray& image, int64_t most_channels, const char* op);
}  // namespace detail

}  // namespace mx::data
