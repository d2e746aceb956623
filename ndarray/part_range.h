// How rows are divided into parts: the batches of replicas, and the shares of the ranks of a job.
#pragma once

#include <algorithm>
#include <cstdint>

namespace mx::detail {

struct PartRange {
  int64_t begin, end;
};

/// Returns the rows of part `part` of `parts`. The first rows % parts parts have one row more than the
/// others. Requires 0 <= part < parts.
constexpr PartRange part_range(int64_t rows, int64_t part, int64_t parts) {
  const int64_t each = rows / parts, more = rows % parts;
  const int64_t begin = part * each + std::min(part, more);
  return {begin, begin + each + (part < more ? 1 : 0)};
}

}  // namespace mx::detail
