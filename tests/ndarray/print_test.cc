// The text of arrays equals NumPy's in every character. golden/make_print.py describes how the cases were
// made.
#include "ndarray/print.h"

#include <gtest/gtest.h>

#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "ndarray/print_number.h"

namespace mx {
namespace {

const char kGolden[] =
#include <golden_print.inc>
    ;

struct Case {
  std::string head;
  DType dtype = f32;
  Shape shape;
  PrintOptions options;
  std::vector<unsigned char> bytes;  // bytes of all elements, row-major
  std::string text;
};

void append_bits(std::vector<unsigned char>& bytes, uint64_t bits, size_t size) {
  const size_t end = bytes.size();
  bytes.resize(end + size);
  // Copies the value, so the byte order of the machine does not matter.
  if (size == 1) {
    bytes[end] = static_cast<unsigned char>(bits);
  } else if (size == 2) {
    const uint16_t value = static_cast<uint16_t>(bits);
    std::memcpy(&bytes[end], &value, size);
  } else if (size == 4) {
    const uint32_t value = static_cast<uint32_t>(bits);
    std::memcpy(&bytes[end], &value, size);
  } else {
    std::memcpy(&bytes[end], &bits, size);
  }
}

std::vector<Case> read_cases() {
  std::vector<Case> cases;
  std::istringstream in(kGolden);
  for (std::string line; std::getline(in, line);) {
    if (line[0] == '|') {
      std::string& text = cases.back().text;
      if (!text.empty()) text += '\n';
      text += line.substr(1);
      continue;
    }
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word == "case") {
      Case c;
      c.head = line;
      std::string dtype, shape;
      words >> dtype >> shape >> c.options.precision >> c.options.threshold >> c.options.edge_items >>
          c.options.line_width >> c.options.suppress;
      c.dtype = dtype_from_string(dtype);
      std::istringstream dims(shape == "-" ? "" : shape);
      for (std::string dim; std::getline(dims, dim, 'x');) c.shape.push_back(std::stoll(dim));
      cases.push_back(c);
      continue;
    }
    std::vector<uint64_t> values;
    while (words >> word) values.push_back(std::stoull(word, nullptr, 16));
    Case& c = cases.back();
    for (int64_t i = 0; i < c.shape.numel(); ++i)
      append_bits(c.bytes, values[static_cast<size_t>(i) % values.size()], size_of(c.dtype));
  }
  return cases;
}

TEST(Print, WritesWhatNumPyWrites) {
  const std::vector<Case> cases = read_cases();
  ASSERT_GE(cases.size(), 400u);
  for (const Case& c : cases) {
    std::vector<unsigned char> bytes = c.bytes;
    const Tensor tensor{bytes.data(), c.dtype, c.shape, contiguous_strides(c.shape)};
    ASSERT_EQ(c.text, format(tensor, c.options)) << c.head;
  }
}

template <class T>
Tensor tensor_of(std::vector<T>& values, const Shape& shape) {
  return {values.data(), dtype_of<T>, shape, contiguous_strides(shape)};
}

TEST(Print, FollowsStrides) {
  std::vector<int32_t> values{1, 2, 3, 4, 5, 6};
  Tensor t = tensor_of(values, {2, 3});
  EXPECT_EQ("[[1 2 3]\n [4 5 6]]", format(t));
  t.shape = {3, 2};
  t.strides = {1, 3};
  EXPECT_EQ("[[1 4]\n [2 5]\n [3 6]]", format(t));
  t = {values.data() + 5, i32, {6}, {-1}};
  EXPECT_EQ("[6 5 4 3 2 1]", format(t));
  t = {values.data(), i32, {2, 3}, {0, 0}};
  EXPECT_EQ("[[1 1 1]\n [1 1 1]]", format(t));
}

TEST(Print, ASummaryReadsOnlyWhatItShows) {
  // 10^12 elements that all refer to one number.
  std::vector<float> one{2.5f};
  const Tensor t{one.data(), f32, {1000000, 1000000}, {0, 0}};
  PrintOptions options;
  options.edge_items = 1;
  EXPECT_EQ("[[2.5 ... 2.5]\n ...\n [2.5 ... 2.5]]", format(t, options));
}

TEST(Print, AnArrayWithoutElementsNeedsNoMemory) {
  EXPECT_EQ("[]", format({nullptr, f64, {3, 0, 2}, {0, 2, 1}}));
}

TEST(Print, EveryFloat16IsReadBackFromItsShortestText) {
  for (uint32_t bits = 1; bits < 0x7c00; ++bits) {
    float16 value;
    value.bits = static_cast<uint16_t>(bits);
    const detail::Decimal decimal = detail::shortest_decimal(value);
    ASSERT_LE(decimal.digits.size(), 5u);
    std::string text = decimal.digits;
    text.insert(1, 1, '.');
    text.append(1, 'e').append(std::to_string(decimal.exponent));
    ASSERT_EQ(bits, float16(std::stof(text)).bits) << text;
  }
}

std::string error_of(const PrintOptions& options) {
  float value = 1;
  try {
    format({&value, f32, {1}, {1}}, options);
  } catch (const InvalidArgument& e) {
    return e.what();
  }
  return "";
}

TEST(Print, RefusesOptionsThatMeanNothing) {
  EXPECT_EQ("", error_of({}));
  EXPECT_EQ("[format] expected a precision from 0 to 100, got -1", error_of({.precision = -1}));
  EXPECT_EQ("[format] expected a precision from 0 to 100, got 101", error_of({.precision = 101}));
  EXPECT_EQ("[format] expected a threshold of 0 or more, got -1", error_of({.threshold = -1}));
  EXPECT_EQ("[format] expected at least 1 edge item, got 0", error_of({.edge_items = 0}));
  EXPECT_EQ("[format] expected a line width of 0 or more, got -3", error_of({.line_width = -3}));
}

}  // namespace
}  // namespace mx
