// ByteSink: the output of the writers of file formats, a file or memory. Bytes are appended in order.
//
// Not thread-safe: one writer at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace mx::io {

using Bytes = std::span<const std::byte>;

class ByteSink {
 public:
  virtual ~ByteSink() = default;
  /// Writes all bytes or throws (FileError from a file, std::bad_alloc from memory).
  virtual void write(Bytes bytes) = 0;
  void write(const std::string& text) { write(std::as_bytes(std::span(text))); }
};

/// Appends to a string of bytes.
class BufferSink : public ByteSink {
 public:
  using ByteSink::write;
  void write(Bytes bytes) override {
    bytes_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  const std::string& bytes() const { return bytes_; }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

}  // namespace mx::io
