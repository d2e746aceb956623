#include "examples/text/corpus.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/io/mapped_file.h"
#include "nn/data/gzip.h"

namespace mx::examples {
namespace {

std::string text_of(const std::string& path, int64_t most) {
  const io::MappedFile file(path);
  const io::Bytes bytes = file.bytes();
  std::string text;
  if (data::is_gzip(bytes)) {
    data::GzipReader reader(bytes, "[corpus] '" + path + "'");
    std::array<std::byte, 65536> piece{};
    for (size_t got = piece.size(); got == piece.size();) {
      got = reader.read(piece);
      text.append(reinterpret_cast<const char*>(piece.data()), got);
    }
    reader.finish();
  } else {
    text.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  if (most > 0 && static_cast<int64_t>(text.size()) > most) text.resize(static_cast<size_t>(most));
  MX_CHECK(text.size() >= 100, InvalidArgument, "[corpus] expected a text of 100 bytes or more in '", path,
           "', got ", text.size());
  return text;
}

}  // namespace

Corpus::Corpus(const std::string& path, int64_t most) {
  const std::string text = text_of(path, most);
  std::array<bool, 256> there{};
  for (const char c : text) there[static_cast<unsigned char>(c)] = true;
  std::array<int64_t, 256> number{};
  for (size_t c = 0; c < there.size(); ++c) {
    if (!there[c]) continue;
    number[c] = characters();
    alphabet_.push_back(static_cast<char>(c));
  }
  std::vector<int64_t> numbers;
  numbers.reserve(text.size());
  for (const char c : text) numbers.push_back(number[static_cast<unsigned char>(c)]);
  const size_t split = numbers.size() * 9 / 10;
  const auto part = [&](size_t begin, size_t end) {
    return from_data(numbers.data() + begin, Shape{static_cast<int64_t>(end - begin)});
  };
  train_ = part(0, split);
  validation_ = part(split, numbers.size());
}

NDArray Corpus::streams(const NDArray& numbers, int64_t count) {
  const int64_t length = numbers.numel() / count;
  MX_CHECK(length >= 2, InvalidArgument, "[corpus] expected 2 characters or more for each of ", count,
           " streams, got a text of ", numbers.numel());
  return numbers.slice(0, {0, length * count}).reshape({count, length}).swap_axes(0, 1).to_contiguous();
}

}  // namespace mx::examples
