// Sums of the values of one call, within a process. Internal.
//
// Thread-safety: any thread. Nothing waits: all functions push operations on arrays.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <vector>

#include "kvstore/kvstore.h"

namespace mx::detail {

/// Clamps a priority to the range of the engine's priorities.
int engine_priority(int64_t priority);

/// Returns the type in which values are added and stored. It is wide enough that a sum of a short type
/// neither overflows nor is rounded after each value. Without `accumulate_f32`, f16 and bf16 stay.
DType sum_type(DType type, bool accumulate_f32 = true);
/// Returns the type in which all of these values are added. Precondition: there is one.
DType sum_type(const std::vector<NDArray>& values, bool accumulate_f32 = true);

/// Returns ((v0 + v1) + v2) + ..., computed on the device `home` in `type`. The result is the only value
/// itself if that needs no conversion. Values are copied to the device in their own type and converted there,
/// so that fewer bytes are transferred.
NDArray sum_values(const std::vector<NDArray>& values, Context home, DType type, std::source_location where);

/// Returns the sum divided by the number of values. Throws InvalidArgument, naming the key, for integers.
NDArray mean_of(const NDArray& sum, int64_t values, const std::string& key, std::source_location where);

}  // namespace mx::detail
