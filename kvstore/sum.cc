#include "kvstore/sum.h"

#include <algorithm>

#include "engine/base/check.h"
#include "operators/elementwise_binary.h"

namespace mx::detail {

int engine_priority(int64_t priority) {
  return static_cast<int>(std::clamp(priority, int64_t{INT16_MIN}, int64_t{INT16_MAX}));
}

DType sum_type(DType type, bool accumulate_f32) {
  if (!is_floating(type)) return i64;
  if (!accumulate_f32 && (type == f16 || type == bf16)) return type;
  return type == f64 ? f64 : f32;
}

DType sum_type(const std::vector<NDArray>& values, bool accumulate_f32) {
  DType type = sum_type(values[0].dtype(), accumulate_f32);
  for (const NDArray& value : values) type = promote(type, sum_type(value.dtype(), accumulate_f32));
  return type;
}

NDArray sum_values(const std::vector<NDArray>& values, Context home, DType type) {
  NDArray sum = values[0].to(home).to(type);
  for (size_t i = 1; i < values.size(); ++i) {
    const NDArray value = values[i].to(home).to(type);
    if (i == 1) {
      sum = sum + value;  // not +=: `sum` may still be the caller's array
    } else {
      sum += value;
    }
  }
  return sum;
}

NDArray mean_of(const NDArray& sum, int64_t values, const std::string& key) {
  MX_CHECK(is_floating(sum.dtype()), InvalidArgument,
           "[KVStore] expected values in floating point for the mean of key \"", key, "\", got integers");
  return values == 1 ? sum : sum / full({}, static_cast<double>(values), sum.dtype(), sum.context());
}

void check_values(const char* op, const std::string& key, const std::vector<NDArray>& values,
                  const Shape& shape, KVReduce reduce) {
  MX_CHECK(!values.empty(), InvalidArgument, "[", op, "] expected one value or more for key \"", key,
           "\", got none");
  for (size_t i = 0; i < values.size(); ++i)
    MX_CHECK(values[i].shape() == shape, InvalidArgument, "[", op, "] expected values of the shape ", shape,
             " of key \"", key, "\", got value ", i, " of shape ", values[i].shape());
  bool real = reduce == KVReduce::sum;
  for (const NDArray& value : values) real = real || is_floating(value.dtype());
  MX_CHECK(real, InvalidArgument, "[", op, "] expected values in floating point for the mean of key \"", key,
           "\", got ", values[0].dtype());
}

void check_outs(const char* op, const std::string& key, const std::vector<NDArray>& outs,
                const Shape& shape) {
  for (size_t i = 0; i < outs.size(); ++i)
    MX_CHECK(outs[i].shape() == shape, InvalidArgument, "[", op, "] expected arrays of the shape ", shape,
             " of key \"", key, "\", got array ", i, " of shape ", outs[i].shape());
}

void check_lengths(const char* op, size_t keys, size_t values, const char* what) {
  MX_CHECK(keys == values, InvalidArgument, "[", op, "] expected ", what, " for each of ", keys,
           " keys, got ", values);
}

}  // namespace mx::detail
