// EventWriter: writes curves, histograms, texts and images for TensorBoard.
//
//   training::EventWriter events("runs/first");
//   events.add_scalar("loss", loss, step);
//   events.add_histogram("fc1.weight", net.parameter("fc1.weight"), step);
//   events.add_text("settings", "lr = 0.1, **batch 64**", 0);
//   events.add_image("digit", image, step);    // f32 in [0, 1], (height, width) or (channels, height, width)
//
// Then: tensorboard --logdir runs. The file is a sequence of records of TFRecord's format (length and masked
// CRC-32C before, masked CRC-32C of the content behind), each a protocol buffer "Event" of TensorFlow
// (tensorflow/core/util/event.proto). A process that is killed leaves a file whose complete records can be
// read.
//
// The functions that take arrays wait for them. All throw FileError if the file cannot be written.
// Thread-safety: any thread may call any member.
#pragma once

#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>
#include <vector>

#include "ndarray/ndarray.h"

namespace mx::training {

struct EventWriterOptions {
  double wall_time = 0;  ///< seconds since 1970 of all events; 0: the time at which they are written
  std::string suffix{};  ///< of the file's name
};

class EventWriter {
 public:
  /// Creates the folder if needed, and in it a file "events.out.tfevents.<seconds>.<host>.<process>".
  explicit EventWriter(const std::string& folder, const EventWriterOptions& options = {});
  ~EventWriter();
  EventWriter(const EventWriter&) = delete;
  EventWriter& operator=(const EventWriter&) = delete;

  void add_scalar(const std::string& tag, double value, int64_t step);
  /// Takes the only element of an array. Throws InvalidArgument for another number of elements.
  void add_scalar(const std::string& tag, const NDArray& value, int64_t step);
  /// Counts all elements that are finite in `bins` equal parts of their range. Throws InvalidArgument for
  /// fewer than 1.
  void add_histogram(const std::string& tag, const NDArray& values, int64_t step, int64_t bins = 30);
  /// Writes a PNG image. `image` is (height, width), or (channels, height, width) with 1, 3 or 4 channels,
  /// either floating point from 0 to 1 (limited to that range; NaN is black) or u8. Throws InvalidArgument
  /// for others.
  void add_image(const std::string& tag, const NDArray& image, int64_t step);
  /// Writes a text, which TensorBoard shows as Markdown; it has to be UTF-8.
  void add_text(const std::string& tag, const std::string& text, int64_t step);
  /// Gives all records to the operating system.
  void flush();
  const std::string& path() const { return path_; }

 private:
  void write_value(const std::string& tag, const std::string& content, int64_t step);
  void write_record(const std::string& event);
  double now() const;

  std::mutex mutex_;
  EventWriterOptions options_;
  std::string path_;
  std::FILE* file_ = nullptr;
};

namespace detail {
/// CRC-32C (Castagnoli) of the bytes.
uint32_t crc32c(const std::string& bytes);
/// Returns the checksum as TFRecord stores it.
uint32_t masked_crc32c(const std::string& bytes);
}  // namespace detail

}  // namespace mx::training
