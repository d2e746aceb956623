#include "mxrun/binding.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "engine/base/cpus.h"

namespace mx::launch {

std::vector<Core> usable_cores() {
  // The kernel refuses a mask that is shorter than its own.
  constexpr int kMostCpus = 16384;
  std::vector<cpu_set_t> mask(kMostCpus / CPU_SETSIZE);
  const size_t bytes = mask.size() * sizeof(cpu_set_t);
  if (sched_getaffinity(0, bytes, mask.data()) != 0) return {};
  std::map<std::string, Core> by_siblings;
  for (int cpu = 0; cpu < kMostCpus; ++cpu) {
    if (!CPU_ISSET_S(cpu, bytes, mask.data())) continue;
    const std::string number = std::to_string(cpu);
    std::ifstream file("/sys/devices/system/cpu/cpu" + number + "/topology/thread_siblings_list");
    std::string siblings;
    // Without a topology every processor counts as a core.
    if (!std::getline(file, siblings)) siblings = "cpu " + number;
    by_siblings[siblings].push_back(cpu);
  }
  std::vector<Core> cores;
  for (auto& [siblings, core] : by_siblings) cores.push_back(std::move(core));
  std::sort(cores.begin(), cores.end());
  return cores;
}

int cpus_of_this_process() {
  constexpr char kName[] = "MX_NUM_THREADS";
  const char* const value = std::getenv(kName);
  if (value == nullptr) return usable_cpus();
  const std::string kept = value;
  unsetenv(kName);
  const int cpus = usable_cpus();
  setenv(kName, kept.c_str(), 1);
  return cpus;
}

std::vector<std::vector<int>> share_cores(const std::vector<Core>& cores, int workers) {
  const auto count = static_cast<int>(cores.size());
  if (workers <= 0 || count < workers) return {};
  std::vector<std::vector<int>> shares(static_cast<size_t>(workers));
  for (int core = 0, worker = 0, left = 0; core < count; ++core) {
    if (core == 0) left = count / workers + (count % workers > 0 ? 1 : 0);
    if (left == 0) {
      ++worker;
      left = count / workers + (worker < count % workers ? 1 : 0);
    }
    --left;
    std::vector<int>& share = shares[static_cast<size_t>(worker)];
    const Core& cpus = cores[static_cast<size_t>(core)];
    share.insert(share.end(), cpus.begin(), cpus.end());
  }
  return shares;
}

int threads_per_worker(int cpus, int workers) { return std::max(1, cpus / std::max(1, workers)); }

}  // namespace mx::launch
