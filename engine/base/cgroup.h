// The folders of the files that hold the limits of this process's cgroup.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace mx {

/// Returns the folders of the process's cgroup and of its ancestors, up to the root, in every hierarchy that
/// has the controller ("cpu", "memory"). cgroup version 2 has one hierarchy for all controllers, version 1
/// one for each. The folders need not exist, because a container sees only its own. Thread-safe.
std::vector<std::string> cgroup_folders(const std::string& controller);
/// The same for the given text of a /proc/PID/cgroup.
std::vector<std::string> cgroup_folders(const std::string& controller, std::istream& groups);

}  // namespace mx
