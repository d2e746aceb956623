// How messages name arrays. Internal.
#pragma once

#include <span>
#include <string>
#include <type_traits>

#include "engine/base/check.h"
#include "ndarray/dtype.h"
#include "ndarray/shape.h"

namespace mx::detail {

/// "f32 (2, 3), i64 ()", or "none". T has members dtype and shape, or points to what has them.
template <class T>
std::string describe(std::span<T> arrays) {
  std::string text;
  for (const auto& each : arrays) {
    if (!text.empty()) text += ", ";
    if constexpr (std::is_pointer_v<std::remove_cv_t<T>>)
      text += concat(each->dtype, ' ', each->shape);
    else
      text += concat(each.dtype, ' ', each.shape);
  }
  return text.empty() ? "none" : text;
}

}  // namespace mx::detail
