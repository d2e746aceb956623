// Little-endian numbers in byte buffers, bytes as hexadecimal digits, and printable texts of what strangers
// send.
//
// Thread-safety: functions without shared state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

namespace mx::comm {

template <class T>
T load_little(const uint8_t* bytes) {
  std::make_unsigned_t<T> value = 0;
  for (size_t i = sizeof(T); i-- > 0;)
    value = static_cast<std::make_unsigned_t<T>>((uint64_t{value} << 8) | bytes[i]);
  return static_cast<T>(value);
}

template <class T>
void store_little(uint8_t* bytes, T value) {
  auto rest = static_cast<uint64_t>(static_cast<std::make_unsigned_t<T>>(value));
  for (size_t i = 0; i < sizeof(T); ++i, rest >>= 8) bytes[i] = static_cast<uint8_t>(rest);
}

/// Returns two lower-case hexadecimal digits per byte.
std::string to_hex(std::string_view bytes);
/// Returns the bytes; nothing if the text is not what to_hex() returns.
std::optional<std::string> from_hex(std::string_view text);

/// Returns the text in quotes, its control characters replaced, so that a stranger cannot write lines into a
/// log.
std::string in_quotes(std::string_view text);

}  // namespace mx::comm
