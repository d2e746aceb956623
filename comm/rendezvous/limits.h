// The limits of entries, checked the same way by every rendezvous.
#pragma once

#include <string_view>

namespace mx::comm {

/// Throws InvalidArgument if the key is empty, or key or value are too long.
void check_entry(std::string_view key, std::string_view value);

}  // namespace mx::comm
