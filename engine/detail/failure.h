// Failure: one root cause, shared by every version that it poisons and every waiter that gets it. Internal.
#pragma once

#include <atomic>
#include <exception>
#include <source_location>
#include <string>

#include "engine/base/no_engine_lock.h"

namespace mx::detail {

struct Failure {
  std::atomic<int> refs{1};
  std::atomic<bool> observed{false};  // a waiter has got it
  std::exception_ptr error;           // rethrown by waiters: typed, with the operation's name and place
  std::string text;                   // the error's message
  Failure* next_dead = nullptr;       // see release_later()

  void retain() { refs.fetch_add(1, std::memory_order_relaxed); }
  /// Drops a reference. Precondition: no engine's lock is held, because the destructor of a user's exception
  /// may run here.
  void release() {
    assert_no_engine_lock();
    if (refs.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
  /// Drops a reference under an engine's lock. If it was the last one, the calling thread's next
  /// free_dead_failures() deletes the failure.
  void release_later() {
    if (refs.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    next_dead = dead;
    dead = this;
  }
  /// The failures that release_later() has left on this thread.
  static thread_local constinit Failure* dead __attribute__((tls_model("initial-exec")));
};

/// Deletes what Failure::release_later() has left on this thread. Precondition: no engine's lock is held.
void free_dead_failures();

/// Returns a failure for the current exception, with the message "[name] ... (pushed at file:line)". An
/// mx::Error keeps its type; anything else becomes an OperationError with the original nested
/// (std::rethrow_if_nested). Without memory for that, returns a failure made by prepare_failures(), whose
/// message says so.
Failure* failure_of_current_exception(const char* name, const std::source_location& where) noexcept;
/// The same for `error`.
Failure* failure_of(std::exception_ptr error, const char* name, const std::source_location& where) noexcept;
/// Returns the failure of an operation if one of its variables was deleted before it was queued.
Failure* failure_of_deleted(const char* name, const std::source_location& where) noexcept;
/// Returns the failure of an operation that was cancelled before it started.
Failure* failure_of_cancelled(const char* name, const std::source_location& where) noexcept;
/// Makes the failure for lack of memory. Must be called before the functions above. Throws std::bad_alloc.
void prepare_failures();

/// Returns the same error with a note after its message.
std::exception_ptr with_note(const std::exception_ptr& error, const std::string& note);

/// Returns the name, or "operation" if it is null.
std::string name_or_default(const char* name);
/// Returns "file:line".
std::string place(const std::source_location& where);

}  // namespace mx::detail
