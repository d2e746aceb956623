// Failure: one root cause, shared by every version it poisons and every waiter that sees it. Internal.
#pragma once

#include <atomic>
#include <exception>
#include <source_location>
#include <string>

#include "engine/base/no_engine_lock.h"

namespace mx::detail {

struct Failure {
  std::atomic<int> refs{1};
  std::atomic<bool> observed{false};  // some waiter has got it
  std::exception_ptr error;           // what waiters get: typed, with the operation's name and place
  std::string text;                   // its message
  Failure* next_dead = nullptr;       // see release_later()

  void retain() { refs.fetch_add(1, std::memory_order_relaxed); }
  /// Without an engine's lock: the destructor of a user's exception may run here.
  void release() {
    assert_no_engine_lock();
    if (refs.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
  /// Under an engine's lock. If this was the last reference, the calling thread's next free_dead_failures()
  /// deletes the failure.
  void release_later() {
    if (refs.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    next_dead = dead;
    dead = this;
  }
  /// The failures that release_later() has left on this thread.
  static thread_local constinit Failure* dead __attribute__((tls_model("initial-exec")));
};

/// Deletes what Failure::release_later() has left on this thread. Without an engine's lock.
void free_dead_failures();

/// "[name] ... (pushed at file:line)": keeps the type of an mx::Error, makes an OperationError of anything
/// else (with the original nested: std::rethrow_if_nested). The exception is the one in flight. Without
/// memory for that, a failure made by prepare_failures() that says so.
Failure* failure_of_current_exception(const char* name, const std::source_location& where) noexcept;
Failure* failure_of(std::exception_ptr error, const char* name, const std::source_location& where) noexcept;
/// A variable of the operation was deleted before it.
Failure* failure_of_deleted(const char* name, const std::source_location& where) noexcept;
/// Cancelled before it started.
Failure* failure_of_cancelled(const char* name, const std::source_location& where) noexcept;
/// To be called before any of them. Throws std::bad_alloc.
void prepare_failures();

/// The same error with a note after its message.
std::exception_ptr with_note(const std::exception_ptr& error, const std::string& note);

/// "name" or "operation" when there is none; "file:line".
std::string name_or_default(const char* name);
std::string place(const std::source_location& where);

}  // namespace mx::detail
