#include "kvstore/server/fold.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "comm/fold.h"
#include "engine/base/check.h"
#include "engine/base/half.h"

namespace mx::kv {
namespace {

/// Calls f(pointer to T) where T is the C++ type of the elements.
template <class F>
void with_elements(comm::Type type, std::byte* data, F&& f) {
  switch (type) {
    case comm::Type::f32:
      return f(reinterpret_cast<float*>(data));
    case comm::Type::f64:
      return f(reinterpret_cast<double*>(data));
    case comm::Type::f16:
      return f(reinterpret_cast<float16*>(data));
    case comm::Type::bf16:
      return f(reinterpret_cast<bfloat16*>(data));
    case comm::Type::i8:
      return f(reinterpret_cast<int8_t*>(data));
    case comm::Type::u8:
      return f(reinterpret_cast<uint8_t*>(data));
    case comm::Type::i32:
      return f(reinterpret_cast<int32_t*>(data));
    case comm::Type::i64:
      return f(reinterpret_cast<int64_t*>(data));
  }
}

bool is_short_float(comm::Type type) { return type == comm::Type::f16 || type == comm::Type::bf16; }

void fold_short(comm::Type type, const std::vector<Bytes>& values) {
  std::vector<const void*> inputs;
  for (const Bytes& value : values) inputs.push_back(value.data);
  comm::fold_ranks(values[0].data, inputs.data(), static_cast<int>(inputs.size()),
                   values[0].size / comm::size_of(type), type, comm::Reduction::sum);
}

/// A divisor from the network need not fit into the type of the elements.
template <class T>
T divided(T value, uint64_t divisor) {
  if constexpr (std::is_integral_v<T>) {
    const auto by = static_cast<int64_t>(std::min<uint64_t>(divisor, std::numeric_limits<int64_t>::max()));
    return static_cast<T>(static_cast<int64_t>(value) / by);
  } else {
    return value / static_cast<T>(divisor);
  }
}

void divide(comm::Type type, const Bytes& sum, uint64_t divisor) {
  const size_t count = sum.size / comm::size_of(type);
  with_elements(type, sum.data, [&]<class T>(T* out) {
    if constexpr (std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>) {
      for (size_t i = 0; i < count; ++i) out[i] = T(static_cast<float>(out[i]) / static_cast<float>(divisor));
    } else {
      for (size_t i = 0; i < count; ++i) out[i] = divided(out[i], divisor);
    }
  });
}

}  // namespace

void RankSum::add(size_t i, Bytes value) {
  MX_ASSERT(!present_[i]);
  present_[i] = true;
  values_[i] = std::move(value);
  ++count_;
  if (is_short_float(type_)) return;
  if (folded_ == 0 && present_[0]) folded_ = 1;
  for (; folded_ > 0 && folded_ < values_.size() && present_[folded_]; ++folded_) {
    comm::fold(comm::Reduction::sum, type_, values_[0].data, values_[folded_].data,
               values_[0].size / comm::size_of(type_));
    values_[folded_] = Bytes();
  }
}

Bytes RankSum::take(uint64_t divisor) {
  MX_ASSERT(complete());
  if (is_short_float(type_) && values_.size() > 1) fold_short(type_, values_);
  Bytes sum = std::move(values_[0]);
  if (divisor > 1) divide(type_, sum, divisor);
  return sum;
}

}  // namespace mx::kv
