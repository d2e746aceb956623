#include "benchmarks/engine/driver.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <map>
#include <sstream>
#include <stdexcept>

#include "benchmarks/engine/child.h"
#include "benchmarks/support/clock.h"
#include "benchmarks/support/process.h"
#include "benchmarks/support/report.h"

namespace mx::bench {
namespace {

using Samples = std::vector<double>;

bool contains(const std::vector<std::string>& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

std::vector<const Case*> chosen_cases(const Plan& plan) {
  std::vector<const Case*> chosen;
  for (const Case& c : cases()) {
    if (plan.verify && !c.verifies) continue;
    if (plan.cases.empty() || contains(plan.cases, c.name) || contains(plan.cases, c.group))
      chosen.push_back(&c);
  }
  for (const std::string& name : plan.cases) {
    const bool known = std::any_of(cases().begin(), cases().end(),
                                   [&](const Case& c) { return c.name == name || c.group == name; });
    if (!known) throw std::invalid_argument("no case or group of cases is called '" + name + "'");
  }
  return chosen;
}

// The helper program of a system that has one is in the same folder as this program.
std::string helper_path(const SystemInfo& system) { return self_path() + "_" + system.name; }

std::vector<const SystemInfo*> chosen_systems(const Plan& plan) {
  for (const std::string& name : known_systems()) {
    const bool wanted = plan.systems.empty() || contains(plan.systems, name);
    if (wanted && find_system(name) == nullptr)
      note("missing: " + name + " was not found when this was built");
  }
  for (const std::string& name : plan.systems) {
    if (!contains(known_systems(), name)) throw std::invalid_argument("no system is called '" + name + "'");
  }
  std::vector<const SystemInfo*> chosen;
  for (const SystemInfo& info : systems()) {
    if (!plan.systems.empty() && !contains(plan.systems, info.name)) continue;
    if (info.own_program && access(helper_path(info).c_str(), X_OK) != 0) {
      note("missing: " + info.name + " has its program elsewhere (" + helper_path(info) + " is not there)");
      continue;
    }
    chosen.push_back(&info);
  }
  return chosen;
}

class Driver {
 public:
  explicit Driver(const Plan& plan) : plan_(plan), self_(self_path()), cpus_(allowed_cpus()) {}

  int run() {
    const auto systems = chosen_systems(plan_);
    for (const Case* c : chosen_cases(plan_)) {
      for (int threads : plan_.threads) {
        if (threads > static_cast<int>(cpus_.size())) {
          note_once("threads " + std::to_string(threads) + ": left out, there are fewer processors");
        } else if (threads >= c->min_threads) {
          run_case(*c, threads, systems);
        }
      }
    }
    print_handoff();
    return failed_ ? 1 : 0;
  }

 private:
  // A line of the output under construction: the values of all rounds.
  struct Row {
    std::string case_name, system, unit;
    Samples samples;
  };

  void run_case(const Case& c, int threads, const std::vector<const SystemInfo*>& systems) {
    std::vector<Row> rows;
    Samples handoffs;
    for (int round = 0; round < (plan_.verify ? 1 : plan_.rounds); ++round) {
      if (plan_.quiet_s > 0) wait_for_quiet();
      if (threads >= 2 && !plan_.verify) handoffs.push_back(handoff());
      for (const SystemInfo* system : systems) {
        if (c.applies(*system)) measure(c, *system, threads, rows);
      }
    }
    for (const Row& row : rows) {
      print(
          {"engine", row.case_name, row.system, threads, row.unit, summarize(row.samples), median(handoffs)});
    }
    handoffs_.insert(handoffs_.end(), handoffs.begin(), handoffs.end());
  }

  void measure(const Case& c, const SystemInfo& system, int threads, std::vector<Row>& rows) {
    const std::string program = system.own_program ? helper_path(system) : self_;
    Job job{&system, c.name, threads, plan_.ops, plan_.wave_side, plan_.quick, plan_.verify};
    const ChildResult result =
        run_child(child_arguments(program, job), first_cpus(threads), plan_.timeout_s, system.environment);
    if (result.timed_out || result.status != 0) {
      note(system.name + " " + c.name + " with " + std::to_string(threads) + " threads: " +
           (result.timed_out ? "no result in time" : "ended with status " + std::to_string(result.status)));
      // A failing peer is only noted. A failure of our own engine, or of a check, fails the run.
      if (plan_.verify || system.name.rfind("mx", 0) == 0) failed_ = true;
    }
    collect(result.output, system.name, rows);
  }

  void collect(const std::string& output, const std::string& system, std::vector<Row>& rows) {
    std::istringstream lines(output);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream fields(line);
      std::string mark, name, unit;
      double value = 0;
      if (!(fields >> mark >> name >> value >> unit) || mark != "@") continue;
      if (unit == "violations" && value != 0) failed_ = true;
      const auto found = std::find_if(rows.begin(), rows.end(), [&](const Row& row) {
        return row.case_name == name && row.system == system;
      });
      Row& row = found != rows.end() ? *found : rows.emplace_back(Row{name, system, unit, {}});
      row.samples.push_back(value);
    }
  }

  double handoff() {
    Job job;
    job.case_name = "handoff";
    std::vector<Row> rows;
    collect(run_child(child_arguments(self_, job), first_cpus(2), plan_.timeout_s).output, "machine", rows);
    const double value = rows.empty() ? 0 : rows.front().samples.front();
    if (value > 0) best_handoff_ = std::min(best_handoff_, value);
    return value;
  }

  // The hand-off needs both cores, so it becomes slow as soon as another program runs on one of them.
  void wait_for_quiet() {
    if (cpus_.size() < 2) return;
    constexpr double kQuiet = 1.5;  // times the best seen
    const int64_t deadline = now_ns() + int64_t{plan_.quiet_s} * 1'000'000'000;
    while (handoff() > kQuiet * best_handoff_) {
      if (now_ns() > deadline)
        return note_once("the machine did not become quiet; see `handoff` in the records");
      usleep(200'000);
    }
  }

  void print_handoff() {
    if (!handoffs_.empty()) print({"engine", "handoff", "machine", 2, "ns", summarize(handoffs_)});
  }

  std::vector<int> first_cpus(int count) const { return {cpus_.begin(), cpus_.begin() + count}; }

  void note_once(const std::string& text) {
    if (noted_[text]++ == 0) note(text);
  }

  const Plan& plan_;
  const std::string self_;
  const std::vector<int> cpus_;
  Samples handoffs_;
  double best_handoff_ = std::numeric_limits<double>::max();
  std::map<std::string, int> noted_;
  bool failed_ = false;
};

}  // namespace

int run_plan(const Plan& plan) { return Driver(plan).run(); }

}  // namespace mx::bench
