// The outer process of an agent: see agent.h.
#pragma once

#include <functional>

namespace mx::launch {

/// Forks; runs `inner` in the child, which gets a descriptor that is readable when the guardian has ended
/// (-1 if the kernel has none), and guards it in this process until it ends or until the parent of this
/// process ends. Kills everything below before it returns the exit code of `inner`, or 128 + signal.
/// Precondition: the process has one thread.
int guard(int close_here, const std::function<int(int guardian_fd)>& inner);

}  // namespace mx::launch
