// The entry points of the fuzzers of text that users and schedulers write: hosts and lists of nodes. Each
// takes arbitrary bytes and returns whether they were accepted. It ends the process if the parser breaks a
// promise: an exception that is not an mx::Error, a limit that is not kept, or a list that changes when it
// is printed and read again.
#pragma once

#include <cstddef>
#include <span>

#include "tests/fuzz/entries.h"

namespace mx::fuzz {

bool hostfile(std::span<const std::byte> text);
bool host_list(std::span<const std::byte> text);
bool node_list(std::span<const std::byte> text);

inline constexpr Target kTextTargets[] = {
    {"hostfile", hostfile}, {"host_list", host_list}, {"node_list", node_list}};

}  // namespace mx::fuzz
