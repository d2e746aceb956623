#include "kvstore/server/fold.h"

#include <cstring>

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

template <class T>
inline constexpr bool kShortFloat = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;

bool is_short_float(comm::Type type) { return type == comm::Type::f16 || type == comm::Type::bf16; }

template <class T>
T sum_of_two(T a, T b) {
  if constexpr (std::is_integral_v<T>) {  // wraps, as the sums of arrays do
    return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) + static_cast<std::make_unsigned_t<T>>(b));
  } else {
    return a + b;
  }
}

void add_to(comm::Type type, const Bytes& sum, const Bytes& value) {
  const size_t count = sum.size / comm::size_of(type);
  with_elements(type, sum.data, [&]<class T>(T* __restrict out) {
    const T* __restrict in = reinterpret_cast<const T*>(value.data);
    if constexpr (!kShortFloat<T>)
      for (size_t i = 0; i < count; ++i) out[i] = sum_of_two(out[i], in[i]);
  });
}

void fold_short(comm::Type type, const std::vector<Bytes>& values) {
  const size_t count = values[0].size / comm::size_of(type);
  with_elements(type, values[0].data, [&]<class T>(T* out) {
    if constexpr (kShortFloat<T>)
      for (size_t i = 0; i < count; ++i) {
        float sum = static_cast<float>(out[i]);
        for (size_t k = 1; k < values.size(); ++k)
          sum += static_cast<float>(reinterpret_cast<const T*>(values[k].data)[i]);
        out[i] = T(sum);
      }
  });
}

void divide(comm::Type type, const Bytes& sum, uint64_t divisor) {
  const size_t count = sum.size / comm::size_of(type);
  with_elements(type, sum.data, [&]<class T>(T* out) {
    if constexpr (kShortFloat<T>) {
      for (size_t i = 0; i < count; ++i) out[i] = T(static_cast<float>(out[i]) / static_cast<float>(divisor));
    } else {
      for (size_t i = 0; i < count; ++i) out[i] = static_cast<T>(out[i] / static_cast<T>(divisor));
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
    add_to(type_, values_[0], values_[folded_]);
    values_[folded_] = Bytes();
  }
}

Bytes RankSum::take(uint64_t divisor) {
  MX_ASSERT(complete());
  if (is_short_float(type_) && values_.size() > 1) fold_short(type_, values_);
  Bytes sum = std::move(values_[0]);
  if (divisor > 1) divide(type_, sum, divisor);
  values_.assign(values_.size(), Bytes());
  present_.assign(present_.size(), false);
  count_ = folded_ = 0;
  return sum;
}

}  // namespace mx::kv
