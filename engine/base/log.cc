#include "engine/base/log.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace mx {

namespace {

LogLevel level_from_environment() {
  const char* text = std::getenv("MX_LOG");
  const std::string name = text != nullptr ? text : "";
  if (name == "error") return LogLevel::error;
  if (name == "info") return LogLevel::info;
  if (name == "debug") return LogLevel::debug;
  return LogLevel::warning;
}

struct Log {
  std::mutex mutex;
  LogSink sink;
  LogLevel level = level_from_environment();
};

// Never destroyed: threads may log while static destructors run.
Log& state() {
  static Log* log = new Log;
  return *log;
}

constexpr const char* kNames[] = {"error", "warning", "info", "debug"};

}  // namespace

LogSink set_log_sink(LogSink sink) {
  std::lock_guard lock(state().mutex);
  std::swap(sink, state().sink);
  return sink;
}

bool log_enabled(LogLevel level) { return level <= state().level; }

void detail::log_line(LogLevel level, const std::string& line) {
  std::lock_guard lock(state().mutex);
  if (state().sink) {
    state().sink(level, line);
  } else {
    std::fprintf(stderr, "mx: %s: %s\n", kNames[static_cast<int>(level)], line.c_str());
  }
}

}  // namespace mx
