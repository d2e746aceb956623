// The name of this host, for messages to people.
//
// Thread-safety: any thread.
#pragma once

#include <string>

namespace mx::comm {

/// Returns the name of this host, "unknown" if it has none.
std::string host_name();

}  // namespace mx::comm
