// Captures the errors that a piece of code throws and the lines that are logged.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <typeinfo>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/log.h"

namespace mx::test {

/// Not a template over the callable: the tests have hundreds of them, and each would be compiled anew.
template <class E>
std::string error_of_call(void (*call)(void* f), void* f) {
  try {
    call(f);
  } catch (const E& e) {
    return e.what();
  } catch (const std::exception& e) {
    ADD_FAILURE() << "expected another type of error, got " << typeid(e).name() << ": " << e.what();
    return "";
  } catch (...) {
    ADD_FAILURE() << "expected another type of error";
    return "";
  }
  ADD_FAILURE() << "expected an error of type " << typeid(E).name() << ", got none";
  return "";
}

/// Runs f, which must throw an E; returns its message, or "" after recording a test failure.
template <class E, class F>
std::string error_of(const F& f) {
  return error_of_call<E>([](void* g) { (*static_cast<F*>(g))(); }, const_cast<F*>(std::addressof(f)));
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Runs f, which must throw an E with a message that contains `part`.
template <class E, class F>
void expect_error(const std::string& part, const F& f) {
  const std::string message = error_of<E>(f);
  EXPECT_TRUE(contains(message, part)) << message;
}

/// Replaces the log sink during its lifetime.
class LogCapture {
 public:
  LogCapture()
      : before_(set_log_sink([this](LogLevel, const std::string& line) {
          std::lock_guard lock(mutex_);
          lines_.push_back(line);
          changed_.notify_all();
        })) {}
  ~LogCapture() { set_log_sink(before_); }
  LogCapture(const LogCapture&) = delete;

  /// Blocks until a line that contains `part` has been logged; returns it.
  std::string wait_for(const std::string& part) {
    std::unique_lock lock(mutex_);
    for (size_t seen = 0;; ++seen) {
      changed_.wait(lock, [&] { return lines_.size() > seen; });
      if (contains(lines_[seen], part)) return lines_[seen];
    }
  }
  std::vector<std::string> lines() const {
    std::lock_guard lock(mutex_);
    return lines_;
  }
  /// Returns the number of lines that contain `part`.
  size_t count(const std::string& part) const {
    size_t n = 0;
    for (const std::string& line : lines()) n += contains(line, part);
    return n;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> lines_;
  LogSink before_;
};

}  // namespace mx::test
