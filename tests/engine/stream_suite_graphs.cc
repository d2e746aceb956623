// Known graphs: the number of event waits is minimal, and the schedule is as short as the longest path.
//
// The schedule is computed rather than timed: the test takes the order in which operations were put on each
// stream, assumes unit durations and derives when each operation ends. All roots are blocked until everything
// has been enqueued, because an operation that ends early would save a wait.
#include <algorithm>
#include <latch>
#include <map>
#include <mutex>

#include "tests/engine/stream_suite.h"

namespace mx::test {

namespace {

struct Graph {
  std::vector<std::vector<int>> inputs;  // for each node, the earlier nodes that it reads
  int add(std::vector<int> nodes) {
    inputs.push_back(std::move(nodes));
    return static_cast<int>(inputs.size()) - 1;
  }
};

struct Schedule {
  uint64_t waits = 0;
  int makespan = 0;
  int critical_path = 0;
  size_t streams = 0;
};

Schedule run_graph(Engine& engine, StreamOps& ops, Context device, const Graph& graph) {
  const size_t count = graph.inputs.size();
  std::vector<Var> vars(count);
  for (Var& var : vars) var = engine.new_var();
  const auto roots =
      std::count_if(graph.inputs.begin(), graph.inputs.end(), [](auto& in) { return in.empty(); });
  auto gate = ops.new_meeting(static_cast<int>(roots) + 1);
  std::mutex mutex;
  std::vector<std::pair<size_t, Stream*>> order;
  std::latch enqueued(static_cast<ptrdiff_t>(count));
  const uint64_t waits_before = engine.stats().stream_waits;

  // All operations must be pushed before the first is issued, however slow this thread is.
  engine.pause();
  for (size_t i = 0; i < count; ++i) {
    std::vector<Var> reads;
    for (const int input : graph.inputs[i]) reads.push_back(vars[static_cast<size_t>(input)]);
    engine.push(
        [&, i, root = reads.empty()](RunContext run) {
          if (root) gate->attend(*run.stream());
          {
            std::lock_guard lock(mutex);
            order.emplace_back(i, run.stream());
          }
          enqueued.count_down();
        },
        {.reads = reads, .writes = {vars[i]}, .context = device, .name = "node"});
  }
  engine.resume();
  enqueued.wait();
  gate->host_attends();
  engine.wait_all();
  EXPECT_TRUE(gate->all_met());

  Schedule result;
  result.waits = engine.stats().stream_waits - waits_before;
  std::vector<int> end(count), path(count);
  std::map<Stream*, int> stream_end;
  for (const auto& [node, stream] : order) {
    int begin = stream_end[stream];
    for (const int input : graph.inputs[node]) {
      begin = std::max(begin, end[static_cast<size_t>(input)]);
      path[node] = std::max(path[node], path[static_cast<size_t>(input)]);
    }
    end[node] = stream_end[stream] = begin + 1;
    path[node] += 1;
  }
  result.makespan = *std::max_element(end.begin(), end.end());
  result.critical_path = *std::max_element(path.begin(), path.end());
  result.streams = stream_end.size();
  for (const Var& var : vars) engine.delete_var(var);
  return result;
}

void expect_schedule(const Schedule& schedule, uint64_t waits) {
  EXPECT_EQ(schedule.waits, waits);
  EXPECT_LE(schedule.makespan, 1.1 * schedule.critical_path);
}

TEST_P(StreamSuite, AChainNeedsOneStreamAndNoWait) {
  Graph graph;
  int last = graph.add({});
  for (int i = 0; i < 50; ++i) last = graph.add({last});
  const Schedule schedule = run_graph(start(8), ops(), device(), graph);
  expect_schedule(schedule, 0);
  EXPECT_EQ(schedule.streams, 1u);
}

TEST_P(StreamSuite, IndependentChainsNeedAStreamEachAndNoWait) {
  Graph graph;
  std::vector<int> lasts;
  for (int i = 0; i < 4; ++i) lasts.push_back(graph.add({}));
  for (int i = 0; i < 40; ++i)
    lasts[static_cast<size_t>(i % 4)] = graph.add({lasts[static_cast<size_t>(i % 4)]});
  const Schedule schedule = run_graph(start(8), ops(), device(), graph);
  expect_schedule(schedule, 0);
  EXPECT_EQ(schedule.streams, 4u);
}

TEST_P(StreamSuite, AForkJoinOfKWaitsTwiceForAllBranchesButOne) {
  for (const int k : {2, 4, 7}) {
    Graph graph;
    const int root = graph.add({});
    std::vector<int> branches;
    for (int i = 0; i < k; ++i) branches.push_back(graph.add({root}));
    graph.add(branches);
    expect_schedule(run_graph(start(8), ops(), device(), graph), static_cast<uint64_t>(2 * (k - 1)));
  }
}

// Everything is enqueued before anything ends, so no stream is idle after the first fork-join.
TEST_P(StreamSuite, ForkJoinsInARowOverlapEachTime) {
  constexpr int kBranches = 6, kTimes = 5;
  Graph graph;
  int last = graph.add({});
  for (int t = 0; t < kTimes; ++t) {
    std::vector<int> branches;
    for (int i = 0; i < kBranches; ++i) branches.push_back(graph.add({last}));
    last = graph.add(branches);
  }
  expect_schedule(run_graph(start(8), ops(), device(), graph), 2 * (kBranches - 1) * kTimes);
}

TEST_P(StreamSuite, ADiamondWaitsTwice) {
  Graph graph;
  const int root = graph.add({});
  const int left = graph.add({root}), right = graph.add({root});
  graph.add({left, right});
  expect_schedule(run_graph(start(8), ops(), device(), graph), 2);
}

TEST_P(StreamSuite, ABinaryReductionWaitsOncePerInnerNode) {
  Graph graph;
  std::vector<int> level;
  for (int i = 0; i < 8; ++i) level.push_back(graph.add({}));
  while (level.size() > 1) {
    std::vector<int> next;
    for (size_t i = 0; i < level.size(); i += 2) next.push_back(graph.add({level[i], level[i + 1]}));
    level = next;
  }
  expect_schedule(run_graph(start(8), ops(), device(), graph), 7);
}

TEST_P(StreamSuite, ABinaryBroadcastWaitsOncePerSecondChild) {
  Graph graph;
  graph.add({});
  for (int i = 1; i < 15; ++i) graph.add({(i - 1) / 2});
  expect_schedule(run_graph(start(8), ops(), device(), graph), 7);
}

TEST_P(StreamSuite, AGridWaitsOncePerNodeBelowTheFirstRow) {
  constexpr int kSide = 6;
  Graph graph;
  for (int row = 0; row < kSide; ++row) {
    for (int column = 0; column < kSide; ++column) {
      std::vector<int> inputs;
      if (row > 0) inputs.push_back((row - 1) * kSide + column);
      if (column > 0) inputs.push_back(row * kSide + column - 1);
      graph.add(inputs);
    }
  }
  expect_schedule(run_graph(start(8), ops(), device(), graph), kSide * (kSide - 1));
}

TEST_P(StreamSuite, ATransitiveInputCostsNoWait) {
  Graph graph;
  const int root = graph.add({});
  const int left = graph.add({root}), right = graph.add({root});
  const int join = graph.add({left, right, root});
  graph.add({join, left, right, root});
  expect_schedule(run_graph(start(8), ops(), device(), graph), 2);
}

}  // namespace

}  // namespace mx::test
