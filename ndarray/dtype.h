// DType: the type of an array's elements, and type promotion.
//
// Promotion follows PyTorch: bool < integers < floating point. Within a category the wider type wins. u8 with
// i8 gives i32, because there is no i16 here; f16 with bf16 gives f32. Scalars are weak: a scalar changes the
// type only if its category is higher than the array's.
// Source: https://pytorch.org/docs/stable/tensor_attributes.html ("Type promotion").
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <type_traits>

#include "engine/base/half.h"

namespace mx {

/// The enumerators do not have the numbers of any file format; the code for files and DLPack translates them.
enum class DType : uint8_t { f32, f64, f16, bf16, i8, u8, i32, i64, bool_ };

inline constexpr DType f32 = DType::f32;
inline constexpr DType f64 = DType::f64;
inline constexpr DType f16 = DType::f16;
inline constexpr DType bf16 = DType::bf16;
inline constexpr DType i8 = DType::i8;
inline constexpr DType u8 = DType::u8;
inline constexpr DType i32 = DType::i32;
inline constexpr DType i64 = DType::i64;
inline constexpr DType bool_ = DType::bool_;

inline constexpr int kDTypes = 9;
inline constexpr DType kAllDTypes[kDTypes] = {f32, f64, f16, bf16, i8, u8, i32, i64, bool_};

/// Bytes of one element.
constexpr size_t size_of(DType type) {
  constexpr uint8_t sizes[kDTypes] = {4, 8, 2, 2, 1, 1, 4, 8, 1};
  return sizes[static_cast<int>(type)];
}

constexpr bool is_floating(DType type) { return type <= DType::bf16; }
/// The type in which kernels compute and add up values of a type: f64 for f64, and f32 for the others.
constexpr DType accumulation_type(DType type) { return type == DType::f64 ? DType::f64 : DType::f32; }
constexpr bool is_integral(DType type) { return type >= DType::i8 && type <= DType::i64; }
/// Returns 0 for bool, 1 for integers, 2 for floating-point types. Promotion yields the higher category.
constexpr int category(DType type) { return is_floating(type) ? 2 : is_integral(type) ? 1 : 0; }

/// "f32", ..., "bool".
const char* to_string(DType type);
std::ostream& operator<<(std::ostream& out, DType type);
/// Returns the type with that name. Throws InvalidArgument, listing the names, if there is none.
DType dtype_from_string(const std::string& name);

/// Returns the type in which an operation on two arrays is computed.
DType promote(DType a, DType b);
/// The same for an array and a weak operand of type `scalar`.
DType promote_weak(DType array, DType scalar);

namespace detail {
template <class T>
struct DTypeOf;
}  // namespace detail

/// The DType of a C++ element type: dtype_of<float> == f32.
template <class T>
inline constexpr DType dtype_of = detail::DTypeOf<std::remove_cv_t<T>>::value;

namespace detail {
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct DTypeOf<float16> {
  static constexpr DType value = DType::f16;
};
template <>
struct DTypeOf<bfloat16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<int8_t> {
  static constexpr DType value = DType::i8;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::u8;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct DTypeOf<bool> {
  static constexpr DType value = DType::bool_;
};
template <>
struct DTypeOf<long long> {
  static constexpr DType value = DType::i64;
};

template <class T>
struct TypeTag {
  using type = T;
};
}  // namespace detail

/// Calls f(tag), where `typename decltype(tag)::type` is the C++ type of the elements, and returns its
/// result. Kernels use it instead of macros.
template <class F>
decltype(auto) visit(DType type, F&& f) {
  switch (type) {
    case DType::f32:
      return f(detail::TypeTag<float>{});
    case DType::f64:
      return f(detail::TypeTag<double>{});
    case DType::f16:
      return f(detail::TypeTag<float16>{});
    case DType::bf16:
      return f(detail::TypeTag<bfloat16>{});
    case DType::i8:
      return f(detail::TypeTag<int8_t>{});
    case DType::u8:
      return f(detail::TypeTag<uint8_t>{});
    case DType::i32:
      return f(detail::TypeTag<int32_t>{});
    case DType::i64:
      return f(detail::TypeTag<int64_t>{});
    case DType::bool_:
      break;
  }
  return f(detail::TypeTag<bool>{});
}

/// The same with an unsigned integer of the type's size, for code that only moves elements.
template <class F>
decltype(auto) visit_size(DType type, F&& f) {
  switch (size_of(type)) {
    case 1:
      return f(detail::TypeTag<uint8_t>{});
    case 2:
      return f(detail::TypeTag<uint16_t>{});
    case 4:
      return f(detail::TypeTag<uint32_t>{});
    default:
      return f(detail::TypeTag<uint64_t>{});
  }
}

}  // namespace mx
