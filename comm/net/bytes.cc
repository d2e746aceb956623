#include "comm/net/bytes.h"

namespace mx::comm {

std::string in_quotes(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x20 || byte == 0x7f ? '?' : c;
  }
  return out + "'";
}

}  // namespace mx::comm
