// Which ranks of a job may be able to share memory.
//
// Thread-safety: any thread.
#pragma once

#include <string>

namespace mx::comm {

/// Returns a text that is equal for two processes if they can exchange descriptors: the name of the host, the
/// boot ID of its kernel (so that two machines of the same name differ), the namespaces of its network and
/// its users (so that containers differ), and the user. What cannot be found out is left empty. It has one
/// line.
std::string machine_of(const std::string& host);

/// Returns whether two such texts have the same host name and the same boot ID: then it is one machine,
/// whatever separates its processes.
bool is_same_boot(const std::string& machine, const std::string& other);

}  // namespace mx::comm
