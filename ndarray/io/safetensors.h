// The safetensors format: eight bytes of length, a JSON header, then the tensors without gaps.
// Source: https://github.com/huggingface/safetensors#format (format and limits). The order and the spelling
// of the header are those of its reference implementation, so files of equal content have equal bytes.
//
// Every size and offset in a file is checked against the actual bytes before use. The functions have no state
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
/// not fit, tensors that overlap, leave gaps or lie outside the file, text that is not UTF-8, booleans other
/// than 0 and 1. It also throws for types that the format has and mxrun does not (U16, F8_E4M3, ...); the
/// message names the type.
Safetensors parse_safetensors(Bytes file, const std::string& path);

/// The layout of a file, for callers that have the data of only one tensor at a time.
struct SafetensorsLayout {
  std::string header;         ///< the first bytes of the file; their number is a multiple of 8
  std::vector<size_t> order;  ///< indices of the tensors in the order in which their data must follow
};

/// Plans a file. Reads only name, dtype and shape of the tensors. Throws InvalidArgument for duplicate names,
/// for names that are not UTF-8 or are "__metadata__", and for a header longer than
/// kMaxSafetensorsHeaderBytes.
SafetensorsLayout plan_safetensors(std::span<const TensorData> tensors, const Metadata& metadata = {});

/// Writes a whole file. Throws like plan_safetensors, InvalidArgument if data and shape disagree, and any
/// exception of the sink.
void write_safetensors(ByteSink& sink, std::span<const TensorData> tensors, const Metadata& metadata = {});

}  // namespace mx::io
