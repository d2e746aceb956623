// JPEG through libjpeg-turbo. The library reports an error by calling a function that must not return; it
// jumps back with longjmp. So no object with a destructor may be created between setjmp and the jump.
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <jpeglib.h>

#include <jerror.h>

#include "engine/base/check.h"
#include "ndarray/io/io_error.h"
#include "nn/data/image_file.h"

namespace mx::data {
namespace {

/// The largest number of scans of a progressive image. A small file could otherwise make the decoder pass
/// over a large image thousands of times.
constexpr int kMostScans = 200;

struct JpegErrors {
  jpeg_error_mgr manager;
  std::jmp_buf back;
  char text[JMSG_LENGTH_MAX];
};

[[noreturn]] void jpeg_fails(j_common_ptr info) {
  auto* const errors = reinterpret_cast<JpegErrors*>(info->err);
  info->err->format_message(info, errors->text);
  std::longjmp(errors->back, 1);
}

// Level -1 is a warning: the decoder goes on with invented data. Some programs write a few superfluous bytes,
// which does no harm; other warnings mean that pixels are wrong.
void jpeg_warns(j_common_ptr info, int level) {
  if (level >= 0) return;
  switch (info->err->msg_code) {
    case JWRN_JPEG_EOF:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_ARITH_BAD_CODE:
    case JWRN_MUST_RESYNC:
      jpeg_fails(info);
    default:
      ++info->err->num_warnings;
  }
}

void jpeg_prints(j_common_ptr) {}

void count_scans(j_common_ptr info) {
  if (!info->is_decompressor) return;
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMostScans) return;
  auto* const errors = reinterpret_cast<JpegErrors*>(info->err);
  std::snprintf(errors->text, sizeof(errors->text), "more than %d scans", kMostScans);
  std::longjmp(errors->back, 1);
}

jpeg_error_mgr* set_errors(JpegErrors& errors) {
  jpeg_error_mgr* const manager = ::jpeg_std_error(&errors.manager);
  manager->error_exit = jpeg_fails;
  manager->emit_message = jpeg_warns;
  manager->output_message = jpeg_prints;
  errors.text[0] = 0;
  return manager;
}

struct JpegDecoder {
  jpeg_decompress_struct info{};
  JpegErrors errors{};
  jpeg_progress_mgr progress{};

  JpegDecoder() { info.err = set_errors(errors); }
  ~JpegDecoder() { ::jpeg_destroy_decompress(&info); }

  // Each of these calls the library below one setjmp, and returns false after an error.
  bool begin(io::Bytes file) {
    if (setjmp(errors.back) != 0) return false;
    jpeg_create_decompress(&info);
    progress.progress_monitor = count_scans;
    info.progress = &progress;
    ::jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(file.data()), file.size());
    ::jpeg_read_header(&info, TRUE);
    return true;
  }
  bool read(uint8_t* pixels) {
    if (setjmp(errors.back) != 0) return false;
    info.out_color_space = info.num_components == 1 ? JCS_GRAYSCALE : JCS_RGB;
    ::jpeg_start_decompress(&info);
    while (info.output_scanline < info.output_height) {
      JSAMPROW row = pixels + size_t{info.output_scanline} * info.output_width *
                                  static_cast<size_t>(info.output_components);
      ::jpeg_read_scanlines(&info, &row, 1);
    }
    ::jpeg_finish_decompress(&info);
    return true;
  }
};

struct JpegEncoder {
  jpeg_compress_struct info{};
  JpegErrors errors{};
  unsigned char* bytes = nullptr;
  unsigned long size = 0;

  JpegEncoder() { info.err = set_errors(errors); }
  ~JpegEncoder() {
    ::jpeg_destroy_compress(&info);
    std::free(bytes);
  }
  bool write(const HostArray& image, int quality) {
    if (setjmp(errors.back) != 0) return false;
    jpeg_create_compress(&info);
    ::jpeg_mem_dest(&info, &bytes, &size);
    info.image_height = static_cast<JDIMENSION>(image.size(0));
    info.image_width = static_cast<JDIMENSION>(image.size(1));
    info.input_components = static_cast<int>(image.size(2));
    info.in_color_space = image.size(2) == 1 ? JCS_GRAYSCALE : JCS_RGB;
    ::jpeg_set_defaults(&info);
    ::jpeg_set_quality(&info, quality, TRUE);
    ::jpeg_start_compress(&info, TRUE);
    const size_t stride = static_cast<size_t>(image.size(1) * image.size(2));
    while (info.next_scanline < info.image_height) {
      auto* row =
          const_cast<uint8_t*>(reinterpret_cast<const uint8_t*>(image.raw())) + info.next_scanline * stride;
      ::jpeg_write_scanlines(&info, &row, 1);
    }
    ::jpeg_finish_compress(&info);
    return true;
  }
};

}  // namespace

namespace detail {

HostArray decode_jpeg(io::Bytes file, const std::string& where, int64_t max_pixels) {
  const auto decoder = std::make_unique<JpegDecoder>();
  const auto fail = [&] {
    throw FormatError(mx::detail::concat(where, ": expected an image in JPEG format, got damaged data (",
                                         decoder->errors.text, ")"));
  };
  if (!decoder->begin(file)) fail();
  check_pixels(decoder->info.image_height, decoder->info.image_width, max_pixels, where);
  const int components = decoder->info.num_components;
  MX_CHECK(components == 1 || components == 3, FormatError, where,
           ": expected a JPEG image of 1 or 3 components, got ", components);
  HostArray made({int64_t{decoder->info.image_height}, int64_t{decoder->info.image_width}, components}, u8);
  if (!decoder->read(made.data<uint8_t>())) fail();
  return made;
}

}  // namespace detail

std::string encode_jpeg(const HostArray& image, int quality) {
  detail::check_encodable(image, 3, "encode_jpeg");
  MX_CHECK(quality >= 1 && quality <= 100, InvalidArgument,
           "[encode_jpeg] expected a quality from 1 to 100, got ", quality);
  MX_CHECK(image.size(0) <= JPEG_MAX_DIMENSION && image.size(1) <= JPEG_MAX_DIMENSION, InvalidArgument,
           "[encode_jpeg] expected sides of at most ", JPEG_MAX_DIMENSION, " pixels, got shape ",
           image.shape());
  const auto encoder = std::make_unique<JpegEncoder>();
  MX_CHECK(encoder->write(image, quality), OutOfMemory,
           "[encode_jpeg] expected memory for the file, got none (", encoder->errors.text, ")");
  return {reinterpret_cast<const char*>(encoder->bytes), encoder->size};
}

}  // namespace mx::data
