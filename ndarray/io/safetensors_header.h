// Reads the JSON header of a safetensors file with an event parser. No tree is built, so deep nesting costs
// no memory, and duplicate keys are found. Internal to safetensors.cc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ndarray/io/safetensors.h"

namespace mx::io::detail {

/// A tensor as the header describes it; offsets are relative to the end of the header.
struct HeaderTensor {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  uint64_t begin = 0, end = 0;
};

struct Header {
  std::vector<HeaderTensor> tensors;  // in the order of the text
  Metadata metadata;
};

/// Parses the header. Throws FormatError; its message begins with `where`.
Header parse_header(std::string_view json, const std::string& where);

/// Returns the text as a JSON string, with the quotes. `text` must be UTF-8.
std::string json_string(const std::string& text);

}  // namespace mx::io::detail
