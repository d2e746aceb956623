// PNG through libpng. The library reports an error by calling a function that must not return; it jumps back
// with longjmp. So no object with a destructor may be created between setjmp and the jump.
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include <png.h>

#include "engine/base/check.h"
#include "ndarray/io/io_error.h"
#include "nn/data/gzip.h"
#include "nn/data/image_file.h"

namespace mx::data {
namespace {

struct PngState {
  png_structp png = nullptr;
  png_infop info = nullptr;
  io::Bytes rest;        // of a file that is read
  std::string* written;  // of a file that is made
  bool no_memory = false;
  char text[120] = "";
};

[[noreturn]] void png_fails(png_structp png, png_const_charp text) {
  auto* const state = static_cast<PngState*>(::png_get_error_ptr(png));
  std::snprintf(state->text, sizeof(state->text), "%s", text);
  png_longjmp(png, 1);
}

void png_warns(png_structp, png_const_charp) {}

void png_reads(png_structp png, png_bytep out, png_size_t bytes) {
  auto* const state = static_cast<PngState*>(::png_get_io_ptr(png));
  if (bytes > state->rest.size()) png_fails(png, "the file ends early");
  std::memcpy(out, state->rest.data(), bytes);
  state->rest = state->rest.subspan(bytes);
}

// An exception must not pass through the library.
void png_writes(png_structp png, png_bytep bytes, png_size_t count) {
  auto* const state = static_cast<PngState*>(::png_get_io_ptr(png));
  try {
    state->written->append(reinterpret_cast<const char*>(bytes), count);
    return;
  } catch (...) {
    state->no_memory = true;
  }
  png_fails(png, "no memory");
}
void png_flushes(png_structp) {}

struct PngDecoder : PngState {
  ~PngDecoder() {
    if (png != nullptr) ::png_destroy_read_struct(&png, &info, nullptr);
  }
  bool begin(io::Bytes file) {
    rest = file;
    png = ::png_create_read_struct(PNG_LIBPNG_VER_STRING, static_cast<PngState*>(this), png_fails, png_warns);
    if (png == nullptr) return false;
    if (setjmp(png_jmpbuf(png)) != 0) return false;
    info = ::png_create_info_struct(png);
    if (info == nullptr) return false;
    ::png_set_read_fn(png, static_cast<PngState*>(this), png_reads);
    // Chunks of text and profiles, which are not used, may be large after decompression.
    ::png_set_chunk_malloc_max(png, 1 << 20);
    ::png_set_crc_action(png, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
    ::png_read_info(png, info);
    return true;
  }
  bool convert() {
    if (setjmp(png_jmpbuf(png)) != 0) return false;
    ::png_set_expand(png);    // palettes to colours, few bits to 8, transparent colours to alpha
    ::png_set_strip_16(png);  // the upper 8 bits
    ::png_set_interlace_handling(png);
    ::png_read_update_info(png, info);
    return true;
  }
  bool read(png_bytep* rows) {
    if (setjmp(png_jmpbuf(png)) != 0) return false;
    ::png_read_image(png, rows);
    ::png_read_end(png, nullptr);
    return true;
  }
};

struct PngEncoder : PngState {
  ~PngEncoder() {
    if (png != nullptr) ::png_destroy_write_struct(&png, &info);
  }
  bool write(const HostArray& image, png_bytep* rows) {
    png =
        ::png_create_write_struct(PNG_LIBPNG_VER_STRING, static_cast<PngState*>(this), png_fails, png_warns);
    if (png == nullptr) return false;
    if (setjmp(png_jmpbuf(png)) != 0) return false;
    info = ::png_create_info_struct(png);
    if (info == nullptr) return false;
    ::png_set_write_fn(png, static_cast<PngState*>(this), png_writes, png_flushes);
    const int channels = static_cast<int>(image.size(2));
    const int type = channels == 1   ? PNG_COLOR_TYPE_GRAY
                     : channels == 3 ? PNG_COLOR_TYPE_RGB
                                     : PNG_COLOR_TYPE_RGB_ALPHA;
    ::png_set_IHDR(png, info, static_cast<png_uint_32>(image.size(1)),
                   static_cast<png_uint_32>(image.size(0)), 8, type, PNG_INTERLACE_NONE,
                   PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    ::png_write_info(png, info);
    ::png_write_image(png, rows);
    ::png_write_end(png, nullptr);
    return true;
  }
};

std::vector<png_bytep> rows_of(const HostArray& image) {
  auto* const pixels = const_cast<png_bytep>(reinterpret_cast<const uint8_t*>(image.raw()));
  std::vector<png_bytep> rows;
  for (int64_t y = 0; y < image.size(0); ++y) rows.push_back(pixels + y * image.size(1) * image.size(2));
  return rows;
}

}  // namespace

namespace detail {

HostArray decode_png(io::Bytes file, const std::string& where, int64_t max_pixels) {
  PngDecoder decoder;
  const auto fail = [&] {
    throw FormatError(mx::detail::concat(where, ": expected an image in PNG format, got damaged data (",
                                         decoder.text[0] != 0 ? decoder.text : "no memory", ")"));
  };
  if (!decoder.begin(file)) fail();
  const int64_t height = ::png_get_image_height(decoder.png, decoder.info);
  const int64_t width = ::png_get_image_width(decoder.png, decoder.info);
  check_pixels(static_cast<uint64_t>(height), static_cast<uint64_t>(width), max_pixels, where);
  const uint64_t row = ::png_get_rowbytes(decoder.png, decoder.info);
  MX_CHECK(row * static_cast<uint64_t>(height) / kMostInflation <= file.size(), FormatError, where,
           ": expected at most ", kMostInflation, " bytes of pixels from each of ", file.size(),
           " bytes, got an image of ", height, " x ", width);
  if (!decoder.convert()) fail();
  const int64_t channels = ::png_get_channels(decoder.png, decoder.info);
  MX_CHECK(::png_get_rowbytes(decoder.png, decoder.info) == static_cast<size_t>(width * channels),
           FormatError, where, ": expected rows of ", width * channels, " bytes, got ",
           ::png_get_rowbytes(decoder.png, decoder.info));
  HostArray made({height, width, channels}, u8);
  std::vector<png_bytep> rows = rows_of(made);
  if (!decoder.read(rows.data())) fail();
  return made;
}

}  // namespace detail

std::string encode_png(const HostArray& image) {
  detail::check_encodable(image, 4, "encode_png");
  MX_CHECK(image.size(0) <= 1'000'000 && image.size(1) <= 1'000'000, InvalidArgument,
           "[encode_png] expected sides of at most 1000000 pixels, got shape ", image.shape());
  std::string made;
  PngEncoder encoder;
  encoder.written = &made;
  std::vector<png_bytep> rows = rows_of(image);
  MX_CHECK(encoder.write(image, rows.data()), OutOfMemory,
           "[encode_png] expected memory for the file, got none (", encoder.text, ")");
  return made;
}

}  // namespace mx::data
