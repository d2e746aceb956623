// Known task graphs, each node of which writes a variable of its own and reads those of its inputs.
#pragma once

#include <string>
#include <vector>

namespace mx::bench {

struct TaskGraph {
  std::string name;
  std::vector<std::vector<int>> inputs;  // of each node; earlier ones
  int minimal_waits = 0;                 // event waits that no schedule on streams can do without, when as
                                         // many run at once as can
};

std::vector<TaskGraph> known_graphs();

}  // namespace mx::bench
