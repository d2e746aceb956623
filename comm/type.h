// The element types of collectives. This layer lies below the arrays, so it has a list of its own.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mx::comm {

/// f16 and bf16 are added in f32 and rounded once, at the end.
enum class Type : uint8_t { f32, f64, f16, bf16, i8, u8, i32, i64 };

inline constexpr int kTypes = 8;
inline constexpr Type kAllTypes[kTypes] = {Type::f32, Type::f64, Type::f16, Type::bf16,
                                           Type::i8,  Type::u8,  Type::i32, Type::i64};

/// Bytes of one element.
constexpr size_t size_of(Type type) {
  constexpr uint8_t sizes[kTypes] = {4, 8, 2, 2, 1, 1, 4, 8};
  return sizes[static_cast<int>(type)];
}

/// "f32", ..., "i64".
constexpr const char* to_string(Type type) {
  constexpr const char* names[kTypes] = {"f32", "f64", "f16", "bf16", "i8", "u8", "i32", "i64"};
  return names[static_cast<int>(type)];
}

}  // namespace mx::comm
