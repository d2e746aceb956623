// Where the limits of this process's cgroup are written.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace mx {

/// The folders of the process's cgroup and of those above it, up to the root, in every hierarchy that has the
/// controller ("cpu", "memory"): version 2 has one for all, version 1 one each. They need not exist: a
/// container sees only its own. Thread-safe.
std::vector<std::string> cgroup_folders(const std::string& controller);
/// The same for the text of a /proc/PID/cgroup.
std::vector<std::string> cgroup_folders(const std::string& controller, std::istream& groups);

}  // namespace mx
