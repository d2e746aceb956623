#include "ndarray/dtype.h"

#include <ostream>

#include "engine/base/check.h"

namespace mx {
namespace {

constexpr const char* kNames[kDTypes] = {"f32", "f64", "f16", "bf16", "i8", "u8", "i32", "i64", "bool"};

}  // namespace

const char* to_string(DType type) { return kNames[static_cast<int>(type)]; }

std::ostream& operator<<(std::ostream& out, DType type) { return out << to_string(type); }

DType dtype_from_string(const std::string& name) {
  for (DType type : kAllDTypes)
    if (name == to_string(type)) return type;
  throw InvalidArgument(detail::concat(
      "[dtype] expected one of f32, f64, f16, bf16, i8, u8, i32, i64 and bool, got '", name, "'"));
}

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (a == DType::bool_) return b;
  if (b == DType::bool_) return a;
  if (is_floating(a) && is_floating(b)) {
    if (a == DType::f64 || b == DType::f64) return DType::f64;
    return DType::f32;  // also for f16 with bf16
  }
  if (is_floating(a)) return a;
  if (is_floating(b)) return b;
  if (size_of(a) != size_of(b)) return size_of(a) > size_of(b) ? a : b;
  return DType::i32;  // i8 with u8
}

DType promote_weak(DType array, DType scalar) {
  if (category(scalar) <= category(array)) return array;
  // The scalar determines only the category; the width is that of the category's default type.
  return is_floating(scalar) ? DType::f32 : DType::i64;
}

}  // namespace mx
