// Starting threads where the system may have none left: a limit of processes, of a cgroup, of address space.
#pragma once

#include <functional>
#include <thread>

namespace mx {

/// How many threads this process can start now, up to `wanted`: starts them, so that all live at the same
/// time, and lets them end. If there are fewer, a quarter of them is left out as a reserve. What it has found
/// is kept for later calls as long as the process's limits stay the same.
///
/// For libraries that start threads later and cannot cope if there is none, as oneTBB. Another process of the
/// same user may take the threads meanwhile: this makes failure unlikely, not impossible.
int startable_threads(int wanted);

/// A thread that runs f. Throws OutOfMemory, naming `who` wants it, if the system has none.
std::thread start_thread(const char* who, std::function<void()> f);

}  // namespace mx
