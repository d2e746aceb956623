// The systems of this program. A system that was not found when the build was configured is left out.
#include "benchmarks/engine/system.h"

namespace mx::bench {
namespace {

std::vector<SystemInfo> make_systems() {
  std::vector<SystemInfo> all;
#ifdef MX_BENCH_MX
  all.push_back({.name = "mx",
                 .dynamic = true,
                 .many_pushers = true,
                 .make = make_mx,
                 .make_pausing = make_mx_pausing});
  all.push_back({.name = "mx_replay", .make = make_mx_replay});
#endif
  all.push_back({.name = "serial", .make = [](int) { return make_serial(); }});
#ifdef MX_BENCH_TBB
  all.push_back({.name = "tbb", .make = make_tbb});
  all.push_back({.name = "tbb_for", .loop = true, .make = make_tbb_for});
#endif
#ifdef MX_BENCH_OMP
  // libgomp searches all pending readers of a variable; with more readers than this it takes minutes.
  all.push_back({.name = "omp", .dynamic = true, .ops_divisor = 4, .dense_divisor = 500, .make = make_omp});
#endif
#ifdef MX_BENCH_OMP_CLANG
  all.push_back({.name = "omp_clang",
                 .dynamic = true,
                 .ops_divisor = 4,
                 .dense_divisor = 10,
                 .own_program = true,
                 .make = make_omp});
#endif
#ifdef MX_BENCH_STARPU
  // Without binding, its workers stay within the mask of the process. "silent" keeps stderr free for notes on
  // results.
  all.push_back({.name = "starpu",
                 .dynamic = true,
                 .ops_divisor = 20,
                 .dense_divisor = 20,
                 .environment = {"STARPU_WORKERS_NOBIND=1", "STARPU_MAIN_THREAD_BIND=0", "STARPU_SILENT=1"},
                 .make = make_starpu});
#endif
#ifdef MX_BENCH_TASKFLOW
  all.push_back(
      {.name = "taskflow", .dynamic = true, .ops_divisor = 2, .dense_divisor = 2, .make = make_taskflow});
#endif
  return all;
}

}  // namespace

const std::vector<SystemInfo>& systems() {
  static const std::vector<SystemInfo> all = make_systems();
  return all;
}

const SystemInfo* find_system(const std::string& name) {
  for (const SystemInfo& info : systems()) {
    if (info.name == name) return &info;
  }
  return nullptr;
}

const std::vector<std::string>& known_systems() {
  static const std::vector<std::string> names = {"mx",  "mx_replay", "serial", "tbb",     "tbb_for",
                                                 "omp", "omp_clang", "starpu", "taskflow"};
  return names;
}

}  // namespace mx::bench
