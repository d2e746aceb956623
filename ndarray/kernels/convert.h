// convert<To>(from): one element from one dtype to another, defined for every value.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "engine/base/half.h"

namespace mx {

template <class To, class From>
To convert(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_same_v<From, float16> || std::is_same_v<From, bfloat16>) {
    return convert<To>(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, bool>) {
    return value != From{0};
  } else if constexpr (std::is_same_v<To, float16> || std::is_same_v<To, bfloat16>) {
    return To(static_cast<float>(value));
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    // C++ leaves these conversions undefined. Here values out of range become the nearest value of the type,
    // and NaN becomes 0. The limits are powers of two, which are exact, so the comparison does not depend on
    // rounding.
    constexpr From beyond = static_cast<From>(uint64_t{1} << (std::numeric_limits<To>::digits - 1)) * From{2};
    if (!(value < beyond)) return value >= beyond ? std::numeric_limits<To>::max() : To{0};
    if constexpr (std::is_signed_v<To>) {
      if (value < -beyond) return std::numeric_limits<To>::min();
    } else {
      if (!(value > From{-1})) return To{0};
    }
    return static_cast<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

}  // namespace mx
