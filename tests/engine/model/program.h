// The small programs that check the variable queues: the accesses of each operation, the operations that
// fail, and enumerations of all such programs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace mx::test::model {

/// The accesses of an operation, one character per variable: '.' none, 'r' read, 'w' write, 'u' update.
using Touches = std::string;

struct Program {
  std::vector<Touches> ops = {};
  // The pusher of each operation; empty: all operations are there from the beginning.
  std::vector<int> pushers = {};
  uint32_t failing = 0;  // one bit per operation
  // If pushers is empty: true if the operations are already in the queues of their variables, not in the
  // ring.
  bool linked = false;
  size_t ring = 4;
  int workers = 2;
  bool batches = false;   // workers take batches instead of single operations
  bool stubborn = false;  // a mutant in which a failure does not end the batch
  int scavenges = 0;      // how often an extra thread steals the operations that workers have not begun

  std::string text() const {
    std::string out;
    for (size_t i = 0; i < ops.size(); ++i) {
      out += ops[i] + (failing >> i & 1 ? "! " : " ");
    }
    return out;
  }
};

/// Calls f(ops) for every list of `ops` operations that touch at least one of `vars` variables. Lists that
/// differ only in the names of variables count as one.
template <class F>
void for_each_program(size_t ops, size_t vars, F&& f) {
  static constexpr char kAccess[] = {'.', 'r', 'w', 'u'};
  size_t kinds = 1;
  for (size_t v = 0; v < vars; ++v) kinds *= 4;
  std::vector<Touches> program(ops, Touches(vars, '.'));
  std::vector<size_t> kind(ops, 1);
  for (;;) {
    for (size_t i = 0; i < ops; ++i) {
      for (size_t v = 0, rest = kind[i]; v < vars; ++v, rest /= 4) program[i][v] = kAccess[rest % 4];
    }
    bool first_of_its_names = true;
    for (size_t v = 1; v < vars; ++v) {
      std::string left, right;
      for (const Touches& touches : program) {
        left += touches[v - 1];
        right += touches[v];
      }
      first_of_its_names &= left >= right;
    }
    if (first_of_its_names) f(program);
    size_t i = 0;
    while (i < ops && ++kind[i] == kinds) kind[i++] = 1;
    if (i == ops) return;
  }
}

/// Calls f(failing) for every set of operations whose failure is observable, that is, of operations that
/// write.
template <class F>
void for_each_failing_set(const std::vector<Touches>& ops, F&& f) {
  for (uint32_t failing = 0; failing < 1u << ops.size(); ++failing) {
    bool shows = true;
    for (size_t i = 0; i < ops.size(); ++i) {
      shows &= !(failing >> i & 1) || ops[i].find_first_of("wu") != std::string::npos;
    }
    if (shows) f(failing);
  }
}

}  // namespace mx::test::model
