// One line per event to standard error, or to a sink that the host program sets.
//
// The level comes from MX_LOG (error, warning, info, debug; default warning). Thread-safe.
#pragma once

#include <functional>
#include <string>

#include "engine/base/check.h"

namespace mx {

enum class LogLevel { error = 0, warning = 1, info = 2, debug = 3 };

using LogSink = std::function<void(LogLevel, const std::string& line)>;

/// Replaces the sink; an empty one restores standard error. Returns the previous sink.
LogSink set_log_sink(LogSink sink);

bool log_enabled(LogLevel level);

namespace detail {
void log_line(LogLevel level, const std::string& line);
}

/// log(LogLevel::warning, "the pool of ", device, " is at ", percent, "%");
template <class... Parts>
void log(LogLevel level, const Parts&... parts) {
  if (log_enabled(level)) detail::log_line(level, detail::concat(parts...));
}

}  // namespace mx
