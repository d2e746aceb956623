// Numbers of the zip format. Internal to zip_reader.cc and zip_writer.cc.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mx::io::detail {

inline constexpr uint32_t kLocalMagic = 0x04034b50;
inline constexpr uint32_t kCentralMagic = 0x02014b50;
inline constexpr uint32_t kEndMagic = 0x06054b50;
inline constexpr uint32_t kEnd64Magic = 0x06064b50;
inline constexpr uint32_t kEnd64LocatorMagic = 0x07064b50;

inline constexpr size_t kLocalBytes = 30;
inline constexpr size_t kCentralBytes = 46;
inline constexpr size_t kEndBytes = 22;
inline constexpr size_t kEnd64Bytes = 56;
inline constexpr size_t kEnd64LocatorBytes = 20;
inline constexpr size_t kMaxCommentBytes = 65535;

inline constexpr uint16_t kMethodStored = 0;
inline constexpr uint16_t kMethodDeflated = 8;
inline constexpr uint16_t kFlagEncrypted = 1 << 0;
inline constexpr uint16_t kFlagStrongEncryption = 1 << 6;
inline constexpr uint16_t kFlagUtf8 = 1 << 11;
inline constexpr uint16_t kFlagMasked = 1 << 13;
inline constexpr uint16_t kExtraZip64 = 1;

inline constexpr size_t kMaxZlibBytes = 1 << 30;  // at once: zlib counts in 32 bits

inline constexpr uint16_t kMax16 = 0xffff;
inline constexpr uint32_t kMax32 = 0xffffffff;

}  // namespace mx::io::detail
