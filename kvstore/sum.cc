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
  return accumulation_type(type);
}

DType sum_type(const std::vector<NDArray>& values, bool accumulate_f32) {
  DType type = sum_type(values[0].dtype(), accumulate_f32);
  for (const NDArray& value : values) type = promote(type, sum_type(value.dtype(), accumulate_f32));
  return type;
}

NDArray sum_values(const std::vector<NDArray>& values, Context home, DType type, std::source_location where) {
  NDArray sum = values[0].to(home, where).to(type, where);
  for (size_t i = 1; i < values.size(); ++i) {
    const NDArray value = values[i].to(home, where).to(type, where);
    if (i == 1) {
      sum = add(Operand(sum, where), value);  // not +=: `sum` may still be the caller's array
    } else {
      sum += Operand(value, where);
    }
  }
  return sum;
}

NDArray mean_of(const NDArray& sum, int64_t values, const std::string& key, std::source_location where) {
  MX_CHECK(is_floating(sum.dtype()), InvalidArgument,
           "[KVStore] expected values in floating point for the mean of key \"", key, "\", got integers");
  if (values == 1) return sum;
  return Operand(sum, where) / full({}, static_cast<double>(values), sum.dtype(), sum.context());
}

}  // namespace mx::detail
