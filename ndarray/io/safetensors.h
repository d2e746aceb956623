// The safetensors format: eight bytes of length, a JSON header, then the tensors without gaps.
// Source: https://github.com/huggingface/safetensors#format (format and limits), and the order and the
// spelling of the header that its reference implementation writes: files of equal content are equal bytes.
//
// Every size and offset in a file is checked against the actual bytes before use. The functions keep no state
// and may be called from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "ndarray/io/tensor_record.h"

namespace mx::io {

using Metadata = std::map<std::string, std::string>;

/// The longest header that is read or written, as in the reference implementation.
inline constexpr uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;

struct Safetensors {
  std::vector<TensorRecord> tensors;  ///< ascending by offset; names are unique UTF-8
  Metadata metadata;
};

/// Reads the header of a whole file; `path` is for messages. The records point into `file`. Throws
/// FormatError for everything that the format forbids: duplicate names, unknown keys and types, sizes that do
/// not fit, tensors that overlap, leave gaps or leave the file, text that is not UTF-8, booleans other than 0
/// and 1. Types that the format has and mxrun has not (U16, F8_E4M3, ...) are refused by name.
Safetensors parse_safetensors(Bytes file, const std::string& path);

/// The layout of a file, for callers that have the data of only one tensor at a time.
struct SafetensorsLayout {
  std::string header;         ///< the first bytes of the file; 8 divides their number
  std::vector<size_t> order;  ///< indices of the tensors in the order in which their data must follow
};

/// Reads only name, dtype and shape of the tensors. Throws InvalidArgument for duplicate names, for names
/// that are not UTF-8 or are "__metadata__", and for a header longer than kMaxSafetensorsHeaderBytes.
SafetensorsLayout plan_safetensors(std::span<const TensorData> tensors, const Metadata& metadata = {});

/// Writes a whole file. Throws as plan_safetensors, InvalidArgument where data and shape disagree, and what
/// the sink throws.
void write_safetensors(ByteSink& sink, std::span<const TensorData> tensors, const Metadata& metadata = {});

}  // namespace mx::io
