// The programs that every system runs, described as operations over variables.
//
//   chain      every operation writes variable 0
//   indep      every operation writes a variable of its own
//   random     1,000 variables; each operation reads two and writes a third
//   fan        one writer of variable 0, then 64 readers of it; repeated
//   wave       a square grid; each cell writes itself and reads the cells above and to its left
//   streaming  a pipeline of 64 stages that items pass through: each operation writes its stage and reads the
//              previous one, so a stage is free for the next item once its successor has read it
//   quad       like random, with three reads: the widest operation without an overflow block
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mx::bench {

struct PatternOp {
  uint32_t write = 0;
  uint32_t reads[3] = {0, 0, 0};
  uint8_t read_count = 0;
  bool writes = false;
};

struct Pattern {
  std::string name;
  uint32_t variables = 0;
  std::vector<PatternOp> ops;

  uint32_t size() const { return static_cast<uint32_t>(ops.size()); }
};

/// Returns a pattern of about `ops` operations (fan: whole groups; wave: the largest square). Throws
/// std::invalid_argument for an unknown name. The same arguments give the same pattern.
Pattern make_pattern(const std::string& name, uint32_t ops);

/// The dependencies that a graph keeps. All values but the first are wrong on purpose, to test the checker.
enum class Edges { all, without_write_after_read, without_read_after_write };

/// The dependencies of a pattern as counters and successor lists, for systems that need edges. A writer
/// depends on the last writer and all readers since then, a reader on the last writer. Duplicates are
/// removed.
struct Graph {
  std::vector<int32_t> predecessors;      // their number, per operation
  std::vector<uint32_t> first_successor;  // size() + 1 offsets into successors
  std::vector<uint32_t> successors;
};
Graph make_graph(const Pattern& pattern, Edges edges = Edges::all);

}  // namespace mx::bench
