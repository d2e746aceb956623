// DLPack 1.x: the structs with which array libraries share memory within a process. They are an ABI, so
// names, numbers and layout are those of the specification. They are in a namespace of mxrun, so that a
// program may include DLPack's own header as well; pointers convert by reinterpret_cast.
// Source: https://dmlc.github.io/dlpack/latest/c_api.html
//
// Strides are in elements. Before version 1.2 a null `strides` meant row-major; later it is not allowed for
// ndim > 0. So exports should always have strides, and imports may have none.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ndarray/dtype.h"

namespace mx::dlpack {

inline constexpr uint32_t kMajorVersion = 1;  ///< DLPACK_MAJOR_VERSION; changes if the layout changes
inline constexpr uint32_t kMinorVersion = 0;

struct DLPackVersion {
  uint32_t major;
  uint32_t minor;
};

enum DLDeviceType : int32_t {
  kDLCPU = 1,
  kDLCUDA = 2,
  kDLCUDAHost = 3,  ///< page-locked host memory
  kDLOpenCL = 4,
  kDLVulkan = 7,
  kDLMetal = 8,
  kDLVPI = 9,
  kDLROCM = 10,
  kDLROCMHost = 11,
  kDLExtDev = 12,
  kDLCUDAManaged = 13,
  kDLOneAPI = 14,
  kDLWebGPU = 15,
  kDLHexagon = 16,
  kDLMAIA = 17,
};

struct DLDevice {
  DLDeviceType device_type;
  int32_t device_id;
};

enum DLDataTypeCode : uint8_t {
  kDLInt = 0,
  kDLUInt = 1,
  kDLFloat = 2,
  kDLOpaqueHandle = 3,
  kDLBfloat = 4,
  kDLComplex = 5,
  kDLBool = 6,
};

struct DLDataType {
  uint8_t code;  ///< a DLDataTypeCode, or a number of a later version
  uint8_t bits;
  uint16_t lanes;
};

struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;  ///< from `data` to the first element
};

/// The older form, without version; capsules named "dltensor".
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);  ///< may be null
};

inline constexpr uint64_t kFlagReadOnly = 1;           ///< DLPACK_FLAG_BITMASK_READ_ONLY
inline constexpr uint64_t kFlagIsCopied = 2;           ///< DLPACK_FLAG_BITMASK_IS_COPIED
inline constexpr uint64_t kFlagSubbyteTypePadded = 4;  ///< DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED

/// The form of version 1.0 and later; capsules named "dltensor_versioned". Version and deleter are at the
/// same place in every version, so a tensor of an unknown major version can be deleted without reading the
/// rest.
struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);  ///< may be null
  uint64_t flags;
  DLTensor dl_tensor;
};

static_assert(sizeof(void*) != 8 || (sizeof(DLTensor) == 48 && sizeof(DLManagedTensor) == 64 &&
                                     sizeof(DLManagedTensorVersioned) == 80));

/// Returns the DLPack type of an element; every DType has one.
DLDataType to_dlpack(DType dtype);
/// Returns the type of an element. Throws InvalidArgument for vectors (lanes other than 1), and for types
/// that mxrun does not have, which the message names.
DType from_dlpack(DLDataType type);

}  // namespace mx::dlpack
