#include "nn/training/event_file.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <system_error>

#include "engine/base/check.h"
#include "ndarray/io/io_error.h"
#include "nn/training/png.h"

namespace mx::training {
namespace {

// The wire format of protocol buffers: a key (number of the field and kind), then the value.
// https://protobuf.dev/programming-guides/encoding

void put_varint(std::string& to, uint64_t value) {
  for (; value >= 0x80; value >>= 7) to += static_cast<char>((value & 0x7F) | 0x80);
  to += static_cast<char>(value);
}
template <class T>
void put_little_endian(std::string& to, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) to += static_cast<char>(value >> (8 * i) & 0xFF);
}
void put_key(std::string& to, uint32_t field, uint32_t kind) { put_varint(to, field << 3 | kind); }
void put_integer(std::string& to, uint32_t field, int64_t value) {
  put_key(to, field, 0);
  put_varint(to, static_cast<uint64_t>(value));
}
void put_double(std::string& to, uint32_t field, double value) {
  put_key(to, field, 1);
  put_little_endian(to, std::bit_cast<uint64_t>(value));
}
void put_float(std::string& to, uint32_t field, float value) {
  put_key(to, field, 5);
  put_little_endian(to, std::bit_cast<uint32_t>(value));
}
void put_bytes(std::string& to, uint32_t field, const std::string& value) {
  put_key(to, field, 2);
  put_varint(to, value.size());
  to += value;
}
void put_doubles(std::string& to, uint32_t field, const std::vector<double>& values) {
  std::string packed;
  for (const double value : values) put_little_endian(packed, std::bit_cast<uint64_t>(value));
  put_bytes(to, field, packed);
}

constexpr std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? 0x82F63B78u : 0);
    table[i] = value;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kCrcTable = crc_table();

}  // namespace

uint32_t detail::crc32c(const std::string& bytes) {
  uint32_t crc = ~uint32_t{0};
  for (const char byte : bytes) crc = crc >> 8 ^ kCrcTable[(crc ^ static_cast<uint8_t>(byte)) & 0xFF];
  return ~crc;
}

// A checksum of data that contains checksums of itself is weak, so TFRecord rotates it and adds a constant.
uint32_t detail::masked_crc32c(const std::string& bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xA282EAD8u;
}

EventWriter::EventWriter(const std::string& folder, const EventWriterOptions& options) : options_(options) {
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  char host[256] = "host";
  if (gethostname(host, sizeof host) != 0) std::strcpy(host, "host");
  host[sizeof host - 1] = 0;
  path_ =
      (std::filesystem::path(folder) / ("events.out.tfevents." + std::to_string(static_cast<int64_t>(now())) +
                                        '.' + host + '.' + std::to_string(::getpid()) + options.suffix))
          .string();
  file_ = std::fopen(path_.c_str(), "ab");
  if (file_ == nullptr) throw FileError("open", path_, errno, "");
  std::string event;
  put_double(event, 1, now());
  put_bytes(event, 3, "brain.Event:2");  // the version of the format
  write_record(event);
}

EventWriter::~EventWriter() {
  if (file_ != nullptr) std::fclose(file_);
}

double EventWriter::now() const {
  if (options_.wall_time != 0) return options_.wall_time;
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void EventWriter::write_record(const std::string& event) {
  std::string length, record;
  put_little_endian(length, static_cast<uint64_t>(event.size()));
  record = length;
  put_little_endian(record, detail::masked_crc32c(length));
  record += event;
  put_little_endian(record, detail::masked_crc32c(event));
  const std::lock_guard lock(mutex_);
  if (std::fwrite(record.data(), 1, record.size(), file_) != record.size())
    throw FileError("write", path_, errno, "");
}

/// Writes an event with one value of a summary; `content` is the value's field beside the tag.
void EventWriter::write_value(const std::string& tag, const std::string& content, int64_t step) {
  std::string value, summary, event;
  put_bytes(value, 1, tag);
  value += content;
  put_bytes(summary, 1, value);
  put_double(event, 1, now());
  put_integer(event, 2, step);
  put_bytes(event, 5, summary);
  write_record(event);
}

void EventWriter::add_scalar(const std::string& tag, double value, int64_t step) {
  std::string content;
  put_float(content, 2, static_cast<float>(value));
  write_value(tag, content, step);
}

void EventWriter::add_scalar(const std::string& tag, const NDArray& value, int64_t step) {
  MX_CHECK(value.defined() && value.numel() == 1, InvalidArgument,
           "[add_scalar] expected an array of one element, got ",
           value.defined() ? to_string(value.shape()) : std::string("nothing"));
  add_scalar(tag, value.detach().to(f64).to_vector<double>()[0], step);
}

void EventWriter::add_histogram(const std::string& tag, const NDArray& values, int64_t step, int64_t bins) {
  MX_CHECK(bins >= 1 && values.defined(), InvalidArgument,
           "[add_histogram] expected an array and 1 bin or more, got ", values.defined() ? "one" : "none",
           " and ", bins);
  std::vector<double> finite;
  for (const double x : values.detach().to(f64).to_vector<double>())
    if (std::isfinite(x)) finite.push_back(x);
  double low = 0, high = 0, sum = 0, squares = 0;
  if (!finite.empty()) {
    low = *std::min_element(finite.begin(), finite.end());
    high = *std::max_element(finite.begin(), finite.end());
  }
  const double width = (high - low) / static_cast<double>(bins);
  std::vector<double> limits, counts(static_cast<size_t>(bins), 0.0);
  for (int64_t i = 1; i <= bins; ++i)
    limits.push_back(i == bins ? high : low + width * static_cast<double>(i));
  for (const double x : finite) {
    sum += x;
    squares += x * x;
    const double place = width > 0 ? (x - low) / width : 0;
    counts[static_cast<size_t>(std::min(place, static_cast<double>(bins - 1)))] += 1;
  }
  std::string histogram, content;
  put_double(histogram, 1, low);
  put_double(histogram, 2, high);
  put_double(histogram, 3, static_cast<double>(finite.size()));
  put_double(histogram, 4, sum);
  put_double(histogram, 5, squares);
  put_doubles(histogram, 6, limits);
  put_doubles(histogram, 7, counts);
  put_bytes(content, 5, histogram);
  write_value(tag, content, step);
}

void EventWriter::add_image(const std::string& tag, const NDArray& image, int64_t step) {
  const bool fits = image.defined() && (image.rank() == 2 || image.rank() == 3) &&
                    (is_floating(image.dtype()) || image.dtype() == u8);
  const int64_t channels = fits && image.rank() == 3 ? image.size(0) : 1;
  MX_CHECK(
      fits && (channels == 1 || channels == 3 || channels == 4) && image.numel() > 0, InvalidArgument,
      "[add_image] expected u8 or floating point of shape (height, width) or (1, 3 or 4, height, width), "
      "got ",
      image.defined() ? mx::detail::concat(image.dtype(), ' ', image.shape()) : std::string("nothing"));
  const NDArray planes = image.detach().reshape({channels, image.size(-2), image.size(-1)});
  const std::vector<double> values = planes.transpose({1, 2, 0}).to(f64).to_vector<double>();
  const double scale = image.dtype() == u8 ? 1 : 255;
  std::vector<uint8_t> pixels;
  pixels.reserve(values.size());
  for (const double x : values) {
    const double level = std::isnan(x) ? 0 : std::clamp(x * scale, 0.0, 255.0);
    pixels.push_back(static_cast<uint8_t>(std::lround(level)));
  }
  std::string message, content;
  put_integer(message, 1, planes.size(1));
  put_integer(message, 2, planes.size(2));
  put_integer(message, 3, channels);
  put_bytes(message, 4, detail::encode_png(pixels, planes.size(1), planes.size(2), channels));
  put_bytes(content, 4, message);
  write_value(tag, content, step);
}

// The text is a tensor of one string, and the summary's metadata name the plugin that shows it.
void EventWriter::add_text(const std::string& tag, const std::string& text, int64_t step) {
  constexpr int64_t kStringType = 7;  // DT_STRING
  std::string plugin, metadata, dimension, shape, tensor, content;
  put_bytes(plugin, 1, "text");
  put_bytes(metadata, 1, plugin);
  put_integer(dimension, 1, 1);
  put_bytes(shape, 2, dimension);
  put_integer(tensor, 1, kStringType);
  put_bytes(tensor, 2, shape);
  put_bytes(tensor, 8, text);
  put_bytes(content, 8, tensor);
  put_bytes(content, 9, metadata);
  write_value(tag, content, step);
}

void EventWriter::flush() {
  const std::lock_guard lock(mutex_);
  if (std::fflush(file_) != 0) throw FileError("write", path_, errno, "");
}

}  // namespace mx::training
