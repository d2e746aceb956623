// Known task graphs. Each node writes a variable of its own and reads the variables of its inputs.
#pragma once

#include <string>
#include <vector>

namespace mx::bench {

struct TaskGraph {
  std::string name;
  std::vector<std::vector<int>> inputs;  // of each node; always earlier nodes
  int minimal_waits = 0;                 // the fewest event waits of any schedule on streams
                                         // that runs as many nodes at once as possible
};

std::vector<TaskGraph> known_graphs();

}  // namespace mx::bench
