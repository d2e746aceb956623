// Broken executors, to test the checker. Most follow a dependency graph that lacks one kind of edge, and run
// the operation that became ready last first, which is the order that depends most on the edges. Two others
// ignore the graph. For each executor a list states on which patterns it must be caught, because a pattern
// may not show a fault: writers that ignore readers pass `wave`, where no variable is written after it has
// been read.
#include "benchmarks/engine/selftest.h"

#include <algorithm>
#include <functional>
#include <thread>

#include "benchmarks/engine/checker.h"

namespace mx::bench {
namespace {

using Execute = std::function<void(const Pattern&, Checker&)>;

struct Mutant {
  const char* name;
  Execute execute;
  std::vector<std::string> caught_on;  // all patterns that must show violations
  bool correct = false;
};

void run_graph(const Pattern& pattern, Checker& checker, Edges edges) {
  Graph graph = make_graph(pattern, edges);
  std::vector<uint32_t> ready;
  for (uint32_t i = 0; i < pattern.size(); ++i) {
    if (graph.predecessors[i] == 0) ready.push_back(i);
  }
  while (!ready.empty()) {
    const uint32_t i = ready.back();
    ready.pop_back();
    checker.run(i);
    for (uint32_t k = graph.first_successor[i]; k < graph.first_successor[i + 1]; ++k) {
      if (--graph.predecessors[graph.successors[k]] == 0) ready.push_back(graph.successors[k]);
    }
  }
}

void run_backwards(const Pattern& pattern, Checker& checker) {
  for (uint32_t i = pattern.size(); i-- > 0;) checker.run(i);
}

void run_all_but_one(const Pattern& pattern, Checker& checker) {
  for (uint32_t i = 0; i + 1 < pattern.size(); ++i) checker.run(i);
}

// Two threads run every other operation each and ignore all dependencies.
void run_unordered(const Pattern& pattern, Checker& checker) {
  std::thread threads[2];
  for (uint32_t t = 0; t < 2; ++t) {
    threads[t] = std::thread([&, t] {
      for (uint32_t i = t; i < pattern.size(); i += 2) checker.run(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

Execute with_edges(Edges edges) {
  return [edges](const Pattern& pattern, Checker& checker) { run_graph(pattern, checker, edges); };
}

std::vector<Mutant> mutants() {
  return {
      {"correct", with_edges(Edges::all), {}, true},
      {"writers_ignore_readers", with_edges(Edges::without_write_after_read), {"random", "fan", "streaming"}},
      {"readers_ignore_writers",
       with_edges(Edges::without_read_after_write),
       {"random", "fan", "wave", "streaming"}},
      {"backwards", run_backwards, {"chain", "random", "fan", "wave", "streaming"}},
      {"loses_one", run_all_but_one, {"chain", "indep", "random", "fan", "wave", "streaming"}},
      {"unordered", run_unordered, {"chain", "random", "fan", "wave", "streaming"}},
  };
}

}  // namespace

std::vector<SelftestResult> run_selftest(uint32_t ops) {
  std::vector<SelftestResult> results;
  for (const Mutant& mutant : mutants()) {
    for (const char* name : {"chain", "indep", "random", "fan", "wave", "streaming"}) {
      const Pattern pattern = make_pattern(name, ops);
      Checker checker(pattern);
      mutant.execute(pattern, checker);
      const bool caught =
          std::find(mutant.caught_on.begin(), mutant.caught_on.end(), name) != mutant.caught_on.end();
      results.push_back({mutant.name, name, checker.violations(), caught, mutant.correct});
    }
  }
  return results;
}

}  // namespace mx::bench
