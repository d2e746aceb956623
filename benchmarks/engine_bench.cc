// engine_bench: the cost of one operation in our engine and in its peers. Prints JSON lines on stdout.
// docs/benchmarks/README.md describes the cases and how to read them.
#include <cstdio>
#include <exception>

#include "benchmarks/engine/child.h"
#include "benchmarks/engine/driver.h"
#include "benchmarks/engine/selftest.h"
#include "benchmarks/support/process.h"
#include "benchmarks/support/report.h"
#include "examples/support/command_line.h"

namespace {

using namespace mx::bench;

int verify_selftest() {
  bool good = true;
  for (const SelftestResult& result : run_selftest(20'000)) {
    print({"engine",
           "selftest_" + result.pattern,
           result.mutant,
           1,
           "violations",
           {static_cast<double>(result.violations), 0, 0, 1}});
    if (result.good()) continue;
    good = false;
    note(result.mutant + " on " + result.pattern + ": " +
         (result.must_be_caught ? "the checker saw nothing" : "a correct executor was accused"));
  }
  return good ? 0 : 1;
}

std::vector<int> doubling_threads(int most) {
  std::vector<int> threads;
  for (int n = 1; n < most; n *= 2) threads.push_back(n);
  threads.push_back(most);
  return threads;
}

void list_everything() {
  for (const Case& c : cases()) std::printf("%-12s %s\n", c.group.c_str(), c.name.c_str());
  for (const SystemInfo& system : systems()) std::printf("system       %s\n", system.name.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (is_child(argc, argv)) return child_main(argc, argv);

  Plan plan;
  bool scaling = false, selftest = false, list = false;
  mx::examples::CommandLine line("Cost of one operation in the engine and its peers; JSON lines on stdout");
  line.option("--cases", &plan.cases, "names or groups of cases (see --list); all by default");
  line.option("--systems", &plan.systems, "systems to measure; all by default");
  const auto threads =
      line.option("--threads", &plan.threads, "processors the whole process is confined to, each in turn")
          .positive();
  const auto ops =
      line.option("--ops", &plan.ops, "operations of the long cases; slow peers run fewer").positive();
  line.option("--wave-side", &plan.wave_side,
              "side of the grid in `wave`; by default the largest within --ops");
  const auto rounds = line.option("--rounds", &plan.rounds, "rounds; the median is printed").positive();
  line.option("--timeout", &plan.timeout_s, "seconds one measurement may take");
  line.option("--quiet-s", &plan.quiet_s, "before each round, seconds to wait for a quiet machine");
  line.flag("--scaling", scaling, "1, 2, 4, ... all processors, and the cases that scale");
  line.flag("--verify", plan.verify, "check order and exclusion instead of timing; status 1 on a violation");
  line.flag("--verify-selftest", selftest, "check that broken executors are caught");
  line.flag("--quick", plan.quick, "small and short: shows that everything works, measures little");
  line.flag("--list", list, "list cases with their groups, and systems");
  if (const auto status = line.parse(argc, argv)) return *status;

  if (list) return list_everything(), 0;
  if (selftest) return verify_selftest();
  // Checked bodies are slow, and fewer operations suffice to check the order.
  if (!ops.given() && plan.verify) plan.ops = 200'000;
  if (!ops.given() && plan.quick) plan.ops = plan.verify ? 10'000 : 50'000;
  if (!rounds.given() && plan.quick) plan.rounds = 1;
  if (scaling) {
    if (!threads.given()) plan.threads = doubling_threads(static_cast<int>(allowed_cpus().size()));
    if (plan.cases.empty()) plan.cases = {"basic", "efficiency", "pushers"};
  }
  try {
    return run_plan(plan);
  } catch (const std::exception& error) {
    note(std::string("engine_bench: ") + error.what());
    return 2;
  }
}
