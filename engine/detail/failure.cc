#include "engine/detail/failure.h"

#include <functional>
#include <memory>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/detail/op.h"

namespace mx::detail {

namespace {

// Returns the failure that is used if there is no memory to describe the actual one. It is made beforehand,
// by prepare_failures(), and never deleted.
Failure* undescribed() {
  static Failure* failure = [] {
    auto* made = new Failure;
    made->text =
        "[engine] expected memory to describe how an operation failed, but the host has none: its error is "
        "lost";
    made->error = std::make_exception_ptr(OutOfMemory(made->text));
    return made;
  }();
  failure->retain();
  return failure;
}

}  // namespace

thread_local constinit Failure* Failure::dead = nullptr;

void free_dead_failures() {
  assert_no_engine_lock();
  while (Failure::dead != nullptr) {  // a destructor that runs here may add more
    Failure* const failure = Failure::dead;
    Failure::dead = failure->next_dead;
    delete failure;
  }
}

void prepare_failures() { undescribed()->release(); }

namespace {

bool is_mx_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

std::string name_or_default(const char* name) { return name != nullptr ? name : "operation"; }

std::string place(const std::source_location& where) { return concat(where.file_name(), ":", where.line()); }

Failure* failure_of_current_exception(const char* name, const std::source_location& where) noexcept {
  try {
    auto failure = std::make_unique<Failure>();
    const auto message = [&](const std::string& text) {
      // Built with std::string, which throws if there is no memory. A stream would truncate the text
      // silently.
      std::string head(1, '[');
      head.append(name_or_default(name)).append("] ");
      // The message of an operation's own check may begin with the operation's name already.
      failure->text = (text.starts_with(head) ? "" : head) + text + " (pushed at " + where.file_name() + ":" +
                      std::to_string(where.line()) + ")";
      return failure->text;
    };
    failure->error = rewrite_current_exception(std::cref(message));  // a copy of it would allocate
    if (failure->text.empty()) {
      // There was no memory for the name and the place. Waiters still get the exception that the operation
      // threw if it is an mx::Error, the type that they expect.
      if (!is_mx_error(failure->error)) return undescribed();
      failure->text = "(no memory)";  // short enough to need none
    }
    return failure.release();
  } catch (const std::bad_alloc&) {
    return undescribed();
  }
}

Failure* failure_of(std::exception_ptr error, const char* name, const std::source_location& where) noexcept {
  try {
    if (error == nullptr)
      throw OperationError("expected a reason for the failure, got a null exception pointer");
    std::rethrow_exception(error);
  } catch (...) {
    return failure_of_current_exception(name, where);
  }
}

Failure* failure_of_deleted(const char* name, const std::source_location& where) noexcept {
  try {
    throw InvalidHandle(
        "expected live variables, got one that was deleted before this operation entered the queue");
  } catch (...) {
    return failure_of_current_exception(name, where);
  }
}

Failure* failure_of_cancelled(const char* name, const std::source_location& where) noexcept {
  try {
    throw Cancelled("cancelled before the operation started");
  } catch (...) {
    return failure_of_current_exception(name, where);
  }
}

std::exception_ptr with_note(const std::exception_ptr& error, const std::string& note) {
  try {
    std::rethrow_exception(error);
  } catch (...) {
    return rewrite_current_exception([&](const std::string& text) { return text + note; });
  }
}

void throw_no_memory(const char* name, const std::source_location& where) {
  throw OutOfMemory(concat("[", name_or_default(name),
                           "] expected memory for one more operation, but the host has none (pushed at ",
                           place(where), ")"));
}

void throw_null_function(const char* name, const std::source_location& where) {
  throw InvalidArgument(concat("[", name_or_default(name),
                               "] expected a function to run, got an empty one (pushed at ", place(where),
                               ")"));
}

}  // namespace mx::detail
