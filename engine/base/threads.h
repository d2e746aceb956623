// Starting threads where a limit on processes, of a cgroup or on address space may leave none to start.
#pragma once

#include <functional>
#include <thread>

namespace mx {

/// Returns how many threads this process can start now, at most `wanted`. To find out, it starts threads that
/// all live at the same time, and lets them end. If it can start fewer than `wanted`, it returns three
/// quarters of them and leaves the rest as a reserve. It remembers the number as long as the process's limits
/// stay the same.
///
/// For libraries that start threads later and cannot handle a failure to start one, such as oneTBB. Another
/// process of the same user may take the threads meanwhile: this makes a failure unlikely, not impossible.
int startable_threads(int wanted);

/// Starts a thread that runs f. Throws OutOfMemory, naming `who` asked for it, if the system has none left.
std::thread start_thread(const char* who, std::function<void()> f);

}  // namespace mx
