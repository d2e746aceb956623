// Sums of the values of one call, within a process. Internal.
//
// Thread-safety: any thread. Nothing waits: all functions push operations on arrays.
#pragma once

#include <cstdint>
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
NDArray sum_values(const std::vector<NDArray>& values, Context home, DType type);

/// Returns the sum divided by the number of values. Throws InvalidArgument, naming the key, for integers.
NDArray mean_of(const NDArray& sum, int64_t values, const std::string& key);

/// Throws InvalidArgument, naming the key, if there is no value, one of another shape, or one of which no
/// mean can be taken.
void check_values(const char* op, const std::string& key, const std::vector<NDArray>& values,
                  const Shape& shape, KVReduce reduce = KVReduce::sum);
/// Throws InvalidArgument, naming the key, if an array that is to be filled has another shape.
void check_outs(const char* op, const std::string& key, const std::vector<NDArray>& outs, const Shape& shape);
/// Throws InvalidArgument if lists that belong together differ in length.
void check_lengths(const char* op, size_t keys, size_t values, const char* what);

}  // namespace mx::detail
