#include "engine/options.h"

#include <cerrno>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include "engine/base/check.h"

namespace mx {

namespace {

int64_t number_from(const char* variable, int64_t least, int64_t most, int64_t otherwise) {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return otherwise;
  char* end = nullptr;
  errno = 0;
  const long long value = std::strtoll(text, &end, 10);
  MX_CHECK(*end == '\0' && errno == 0 && value >= least && value <= most, InvalidArgument, "[", variable,
           "] expected a number from ", least, " to ", most, ", got '", text, "'");
  return value;
}

}  // namespace

EngineOptions EngineOptions::from_environment() {
  EngineOptions options;
  if (const char* text = std::getenv("MX_ENGINE"); text != nullptr && *text != '\0') {
    const std::string_view mode = text;
    if (mode == "threaded") {
      options.mode = EngineMode::threaded;
    } else if (mode == "naive") {
      options.mode = EngineMode::naive;
    } else if (mode == "check") {
      options.mode = EngineMode::check;
    } else {
      char* end = nullptr;
      const bool fuzz = mode.substr(0, 5) == "fuzz:" && mode.size() > 5 && mode[5] >= '0' && mode[5] <= '9';
      if (fuzz) options.seed = std::strtoull(text + 5, &end, 10);
      MX_CHECK(fuzz && *end == '\0', InvalidArgument,
               "[MX_ENGINE] expected threaded, naive, check or fuzz:SEED, got '", text, "'");
      options.mode = EngineMode::fuzz;
    }
  }
  options.watchdog_ms = static_cast<int>(number_from("MX_WATCHDOG_MS", 0, 86'400'000, 0));
  options.history = static_cast<int>(number_from("MX_ENGINE_HISTORY", 0, 10'000'000, 0));
  return options;
}

std::string EngineStats::to_string() const {
  std::ostringstream out;
  out << "pushed " << pushed << ", completed " << completed << " (" << failed << " failed, " << skipped
      << " skipped), in flight " << in_flight << " (" << bytes_in_flight << " bytes), ready " << ready
      << ", running " << running << ", waiting " << waiting << ", throttled " << throttled
      << ", worker starts " << worker_starts << ", calls of the monitor " << monitor_calls
      << ", worker steps " << worker_steps << ", stream operations " << stream_ops << " and waits "
      << stream_waits << ", variables " << vars << ", pool " << op_pool_bytes << " bytes";
  return out.str();
}

}  // namespace mx
