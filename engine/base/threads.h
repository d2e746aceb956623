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

/// Starts a thread that runs f. Throws OutOfMemory if the system cannot start one; the message names `who`,
/// the part of the library that needs the thread.
std::thread start_thread(const char* who, std::function<void()> f);

/// Asks the system to run the calling thread soon after it wakes, even if threads that compute have its core.
/// In return, others may take the core from it sooner. For threads that mostly wait, such as those that talk
/// to other processes. Linux does this since 6.12, for threads with the usual policy; otherwise nothing
/// changes.
void prefer_quick_wakeup() noexcept;

}  // namespace mx
