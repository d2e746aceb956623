#include "ndarray/io/dlpack_abi.h"

#include <string>

#include "engine/base/check.h"

namespace mx::dlpack {
namespace {

const char* name_of(uint8_t code) {
  switch (code) {
    case kDLInt:
      return "int";
    case kDLUInt:
      return "uint";
    case kDLFloat:
      return "float";
    case kDLOpaqueHandle:
      return "opaque handle";
    case kDLBfloat:
      return "bfloat";
    case kDLComplex:
      return "complex";
    case kDLBool:
      return "bool";
    default:
      return "type of a later version, such as an 8-bit float,";
  }
}

}  // namespace

DLDataType to_dlpack(DType dtype) {
  uint8_t code = kDLFloat;
  if (dtype == DType::bf16) code = kDLBfloat;
  if (dtype == DType::bool_) code = kDLBool;
  if (dtype == DType::u8) code = kDLUInt;
  if (is_integral(dtype) && dtype != DType::u8) code = kDLInt;
  return {code, static_cast<uint8_t>(8 * size_of(dtype)), 1};
}

DType from_dlpack(DLDataType type) {
  MX_CHECK(type.lanes == 1, InvalidArgument, "[dlpack] expected elements of one lane, got ", type.lanes);
  for (DType dtype : kAllDTypes) {
    const DLDataType known = to_dlpack(dtype);
    if (known.code == type.code && known.bits == type.bits) return dtype;
  }
  throw InvalidArgument(
      mx::detail::concat("[dlpack] expected f32, f64, f16, bf16, i8, u8, i32, i64 or bool, got ",
                         name_of(type.code), " (code ", int{type.code}, ") of ", int{type.bits}, " bits"));
}

}  // namespace mx::dlpack
