#include "mxrun/launchers/open_files.h"

#include <sys/resource.h>

#include <cstddef>
#include <filesystem>
#include <optional>
#include <system_error>

#include "engine/base/check.h"

namespace mx::launch {
namespace {

std::optional<rlimit> limit_of_programs;

/// Returns how many descriptors this process has; 0 if the system does not tell.
size_t count_open_files() {
  std::error_code error;
  size_t count = 0;
  for (std::filesystem::directory_iterator it("/proc/self/fd", error), end; !error && it != end;
       it.increment(error)) {
    ++count;
  }
  return count;
}

}  // namespace

void raise_open_files() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit_of_programs = limit;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

void restore_open_files() {
  if (limit_of_programs.has_value()) setrlimit(RLIMIT_NOFILE, &*limit_of_programs);
}

void check_open_files(size_t needed, const char* who) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  needed += count_open_files();
  MX_CHECK(limit.rlim_cur >= needed, InvalidArgument, "open files: expected a limit of at least ", needed,
           " for ", who, ", got ", limit.rlim_cur, "; raise it: ulimit -n ", needed);
}

}  // namespace mx::launch
