#include "benchmarks/engine/pattern.h"

#include <algorithm>
#include <stdexcept>

namespace mx::bench {
namespace {

class XorShift {
 public:
  uint32_t below(uint32_t bound) {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<uint32_t>((state_ >> 20) % bound);
  }

 private:
  uint64_t state_ = 0x9E3779B97F4A7C15;
};

PatternOp writer(uint32_t variable) {
  PatternOp op;
  op.writes = true;
  op.write = variable;
  return op;
}

void add_read(PatternOp& op, uint32_t variable) { op.reads[op.read_count++] = variable; }

void fill_random(Pattern& pattern, uint32_t ops, int reads) {
  constexpr uint32_t kVariables = 1000;
  XorShift random;
  pattern.variables = kVariables;
  pattern.ops.reserve(ops);
  const auto used = [](const PatternOp& op, uint32_t variable) {
    return variable == op.write ||
           std::find(op.reads, op.reads + op.read_count, variable) != op.reads + op.read_count;
  };
  for (uint32_t i = 0; i < ops; ++i) {
    PatternOp op = writer(random.below(kVariables));
    while (op.read_count < reads) {
      const uint32_t variable = random.below(kVariables);
      if (!used(op, variable)) add_read(op, variable);
    }
    pattern.ops.push_back(op);
  }
}

void fill_fan(Pattern& pattern, uint32_t ops) {
  constexpr uint32_t kReaders = 64;
  pattern.variables = 1;
  for (uint32_t group = 0; group < std::max(1u, ops / (kReaders + 1)); ++group) {
    pattern.ops.push_back(writer(0));
    PatternOp reader;
    add_read(reader, 0);
    pattern.ops.insert(pattern.ops.end(), kReaders, reader);
  }
}

void fill_wave(Pattern& pattern, uint32_t ops) {
  uint32_t side = 1;
  while (uint64_t{side + 1} * (side + 1) <= ops) ++side;
  pattern.variables = side * side;
  pattern.ops.reserve(pattern.variables);
  for (uint32_t row = 0; row < side; ++row) {
    for (uint32_t column = 0; column < side; ++column) {
      PatternOp op = writer(row * side + column);
      if (row > 0) add_read(op, op.write - side);
      if (column > 0) add_read(op, op.write - 1);
      pattern.ops.push_back(op);
    }
  }
}

void fill_streaming(Pattern& pattern, uint32_t ops) {
  constexpr uint32_t kStages = 64;
  pattern.variables = kStages;
  pattern.ops.reserve(ops);
  for (uint32_t i = 0; i < ops; ++i) {
    PatternOp op = writer(i % kStages);
    if (op.write > 0) add_read(op, op.write - 1);
    pattern.ops.push_back(op);
  }
}

// Returns, for each operation, the earlier ones that must have ended, without duplicates.
std::vector<std::vector<uint32_t>> find_predecessors(const Pattern& pattern, Edges edges) {
  constexpr uint32_t kNone = UINT32_MAX;
  std::vector<uint32_t> last_writer(pattern.variables, kNone);
  std::vector<std::vector<uint32_t>> readers(pattern.variables);
  std::vector<std::vector<uint32_t>> predecessors(pattern.size());
  for (uint32_t i = 0; i < pattern.size(); ++i) {
    const PatternOp& op = pattern.ops[i];
    std::vector<uint32_t>& mine = predecessors[i];
    for (int k = 0; k < op.read_count; ++k) {
      const uint32_t variable = op.reads[k];
      if (edges != Edges::without_read_after_write && last_writer[variable] != kNone) {
        mine.push_back(last_writer[variable]);
      }
      readers[variable].push_back(i);
    }
    if (op.writes) {
      std::vector<uint32_t>& before = readers[op.write];
      if (edges != Edges::without_write_after_read) mine.insert(mine.end(), before.begin(), before.end());
      // If there are readers in between and all edges are kept, they already imply the earlier writer.
      if (last_writer[op.write] != kNone && (before.empty() || edges != Edges::all)) {
        mine.push_back(last_writer[op.write]);
      }
      before.clear();
      last_writer[op.write] = i;
    }
    std::sort(mine.begin(), mine.end());
    mine.erase(std::unique(mine.begin(), mine.end()), mine.end());
  }
  return predecessors;
}

}  // namespace

Pattern make_pattern(const std::string& name, uint32_t ops) {
  Pattern pattern;
  pattern.name = name;
  if (name == "chain") {
    pattern.variables = 1;
    pattern.ops.assign(ops, writer(0));
  } else if (name == "indep") {
    pattern.variables = ops;
    pattern.ops.reserve(ops);
    for (uint32_t i = 0; i < ops; ++i) pattern.ops.push_back(writer(i));
  } else if (name == "random") {
    fill_random(pattern, ops, 2);
  } else if (name == "quad") {
    fill_random(pattern, ops, 3);
  } else if (name == "fan") {
    fill_fan(pattern, ops);
  } else if (name == "wave") {
    fill_wave(pattern, ops);
  } else if (name == "streaming") {
    fill_streaming(pattern, ops);
  } else {
    throw std::invalid_argument("unknown pattern " + name);
  }
  return pattern;
}

Graph make_graph(const Pattern& pattern, Edges edges) {
  const std::vector<std::vector<uint32_t>> predecessors = find_predecessors(pattern, edges);
  Graph graph;
  graph.predecessors.reserve(pattern.size());
  graph.first_successor.assign(pattern.size() + 1, 0);
  for (const auto& list : predecessors) {
    graph.predecessors.push_back(static_cast<int32_t>(list.size()));
    for (uint32_t from : list) ++graph.first_successor[from + 1];
  }
  for (uint32_t i = 0; i < pattern.size(); ++i) graph.first_successor[i + 1] += graph.first_successor[i];
  graph.successors.resize(graph.first_successor.back());
  std::vector<uint32_t> place(graph.first_successor.begin(), graph.first_successor.end() - 1);
  for (uint32_t to = 0; to < pattern.size(); ++to) {
    for (uint32_t from : predecessors[to]) graph.successors[place[from]++] = to;
  }
  return graph;
}

}  // namespace mx::bench
