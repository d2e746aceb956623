#include "benchmarks/stream/graphs.h"

namespace mx::bench {

namespace {

int add(TaskGraph& graph, std::vector<int> inputs) {
  graph.inputs.push_back(std::move(inputs));
  return static_cast<int>(graph.inputs.size()) - 1;
}

TaskGraph chain(int length) {
  TaskGraph graph{"chain", {}, 0};
  for (int i = 0; i < length; ++i) add(graph, i > 0 ? std::vector<int>{i - 1} : std::vector<int>{});
  return graph;
}

TaskGraph chains(int count, int length) {
  TaskGraph graph{"chains", {}, 0};
  for (int i = 0; i < count * length; ++i) {
    add(graph, i >= count ? std::vector<int>{i - count} : std::vector<int>{});
  }
  return graph;
}

TaskGraph fork_joins(int branches, int times) {
  TaskGraph graph{"fork_joins", {}, 2 * (branches - 1) * times};
  int last = add(graph, {});
  for (int t = 0; t < times; ++t) {
    std::vector<int> ends;
    for (int b = 0; b < branches; ++b) ends.push_back(add(graph, {last}));
    last = add(graph, ends);
  }
  return graph;
}

TaskGraph reduction(int leaves) {
  TaskGraph graph{"reduction", {}, leaves - 1};
  std::vector<int> level;
  for (int i = 0; i < leaves; ++i) level.push_back(add(graph, {}));
  while (level.size() > 1) {
    std::vector<int> next;
    for (size_t i = 0; i + 1 < level.size(); i += 2) next.push_back(add(graph, {level[i], level[i + 1]}));
    level = next;
  }
  return graph;
}

TaskGraph grid(int side) {
  TaskGraph graph{"grid", {}, side * (side - 1)};
  for (int row = 0; row < side; ++row) {
    for (int column = 0; column < side; ++column) {
      std::vector<int> inputs;
      if (row > 0) inputs.push_back((row - 1) * side + column);
      if (column > 0) inputs.push_back(row * side + column - 1);
      add(graph, inputs);
    }
  }
  return graph;
}

}  // namespace

std::vector<TaskGraph> known_graphs() {
  return {chain(20), chains(4, 10), fork_joins(6, 5), reduction(8), grid(6)};
}

}  // namespace mx::bench
