#include "engine/base/cpus.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string>

#include "engine/base/cgroup.h"
#include "engine/base/check.h"

namespace mx {

namespace {

// Returns the quota of one cgroup folder in processors, or infinity if it has none.
double quota_of(const std::string& folder) {
  if (std::ifstream file(folder + "/cpu.max"); file) {
    std::string quota;
    double period = 0;
    if (file >> quota >> period && quota != "max" && period > 0) return std::stod(quota) / period;
  }
  std::ifstream quota_file(folder + "/cpu.cfs_quota_us");
  std::ifstream period_file(folder + "/cpu.cfs_period_us");
  double quota = 0;
  double period = 0;
  if (quota_file >> quota && period_file >> period && quota > 0 && period > 0) return quota / period;
  return INFINITY;
}

// Returns the smallest quota of this process's cgroup and its ancestors.
double cgroup_cpus() {
  double best = INFINITY;
  for (const std::string& folder : cgroup_folders("cpu")) best = std::min(best, quota_of(folder));
  return best;
}

}  // namespace

int processors() {
  // The mask of a machine with more than 1024 processors does not fit into cpu_set_t: enlarge the set.
  for (int cpus = CPU_SETSIZE; cpus <= (1 << 20); cpus *= 2) {
    cpu_set_t* set = CPU_ALLOC(cpus);
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(cpus);
    const int rc = sched_getaffinity(0, bytes, set);
    const int count = rc == 0 ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (count > 0) return count;
  }
  return std::max<int>(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
}

int usable_cpus() {
  if (const char* text = std::getenv("MX_NUM_THREADS"); text != nullptr && *text != '\0') {
    char* end = nullptr;
    const long value = std::strtol(text, &end, 10);
    MX_CHECK(*end == '\0' && value >= 1 && value <= 4096, InvalidArgument,
             "[MX_NUM_THREADS] expected a number from 1 to 4096, got '", text, "'");
    return static_cast<int>(value);
  }
  const double quota = cgroup_cpus();
  const int cpus = processors();
  if (!std::isfinite(quota)) return cpus;
  return std::clamp(static_cast<int>(std::ceil(quota)), 1, cpus);
}

}  // namespace mx
