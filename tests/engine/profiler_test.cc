// Observing what ran: the trace is JSON that describes the run, the graph is valid Graphviz, the counters add
// up.
#include <gtest/gtest.h>

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <barrier>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "engine/base/clock.h"
#include "engine/device/registry.h"
#include "engine/device/virtual/virtual_device.h"
#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using nlohmann::json;

class Profiler : public ::testing::Test {
 protected:
  static EngineOptions options() {
    EngineOptions options = test::threaded_case(2).options;
    options.history = 5;
    return options;
  }
  json trace() {
    const std::string path = testing::TempDir() + "mx_trace_" +
                             testing::UnitTest::GetInstance()->current_test_info()->name() + ".json";
    e_.write_trace(path);
    std::ifstream in(path);
    json parsed = json::parse(in);  // throws if the file is not valid JSON
    std::remove(path.c_str());
    return parsed["traceEvents"];
  }
  static std::map<std::string, json> slices(const json& events) {
    std::map<std::string, json> out;
    for (const json& event : events) {
      if (event["ph"] == "X" && !event_of_device(event)) out[event["name"]] = event;
    }
    return out;
  }
  /// Returns whether it is the time that an operation took on its device, not that of issuing it.
  static bool event_of_device(const json& event) { return event.value("cat", "") == "device"; }

  Engine e_{options()};
};

bool overlap(const json& a, const json& b) {
  const double a0 = a["ts"], a1 = a0 + a["dur"].get<double>(), b0 = b["ts"], b1 = b0 + b["dur"].get<double>();
  const double rounding = 0.0005;  // of the sums, in microseconds; times are nanoseconds
  return a0 + rounding < b1 && b0 + rounding < a1;
}

TEST_F(Profiler, OverlappingOperationsOverlapOnTheirRows) {
  Var v = e_.new_var();
  std::barrier meeting(2);
  e_.profiler_start();
  e_.push([] {}, {.writes = {v}, .name = "before"});
  e_.push([&] { meeting.arrive_and_wait(); }, {.reads = {v}, .name = "left"});
  e_.push([&] { meeting.arrive_and_wait(); }, {.reads = {v}, .name = "right"});
  e_.push([] {}, {.writes = {v}, .name = "after"});
  e_.wait_all();
  e_.profiler_stop();
  e_.push([] {}, {.name = "unseen"});
  e_.wait_all();

  const json events = trace();
  auto s = slices(events);
  ASSERT_EQ(4u, s.size()) << events.dump(1);
  EXPECT_TRUE(overlap(s["left"], s["right"]));
  EXPECT_NE(s["left"]["tid"], s["right"]["tid"]);
  for (const char* other : {"left", "right"}) {
    EXPECT_FALSE(overlap(s["before"], s[other]));
    EXPECT_FALSE(overlap(s["after"], s[other]));
  }

  std::set<int> rows;
  for (const json& event : events) {
    if (event["ph"] == "M" && event["name"] == "thread_name") rows.insert(event["tid"].get<int>());
  }
  // Arrows lead from "before" to "left" and "right", and from those to "after". Each must end on existing
  // rows, at the slices it names.
  std::map<int, json> starts, ends;
  for (const json& event : events) {
    EXPECT_TRUE(!event.contains("tid") || rows.contains(event["tid"].get<int>())) << event;
    if (event["ph"] == "s") starts[event["id"].get<int>()] = event;
    if (event["ph"] == "f") ends[event["id"].get<int>()] = event;
  }
  EXPECT_EQ(4u, starts.size());
  ASSERT_EQ(starts.size(), ends.size());
  const auto inside = [](const json& arrow, const json& slice) {
    const double at = arrow["ts"], begin = slice["ts"], length = slice["dur"];
    return arrow["tid"] == slice["tid"] && at >= begin && at <= begin + length;
  };
  int known = 0;
  for (const auto& [id, from] : starts) {
    ASSERT_TRUE(ends.contains(id));
    for (const auto& [a, b] :
         {std::pair{"before", "left"}, {"before", "right"}, {"left", "after"}, {"right", "after"}}) {
      known += inside(from, s[a]) && inside(ends[id], s[b]);
    }
  }
  EXPECT_EQ(4, known);
}

TEST_F(Profiler, NodesOfAReplayAreOperationsWithArrows) {
  Var v = e_.new_var(), w = e_.new_var();
  Segment s = e_.record([&] {
    e_.push([] {}, {.writes = {v}, .priority = 1, .name = "on the CPU"});
    e_.push([](RunContext) {}, {.reads = {v}, .writes = {w}, .context = virt(0), .name = "on a device"});
    e_.push_async([](RunContext, Completion done) { done(); }, {.updates = {w}, .name = "by token"});
  });
  s.replay();
  e_.wait_all();  // not traced; must not use up a number of a traced operation
  e_.profiler_start();
  s.replay();
  e_.push([] {}, {.reads = {w}, .name = "after"});
  e_.wait_all();
  e_.profiler_stop();
  const json events = trace();
  auto slice = slices(events);
  ASSERT_EQ(4u, slice.size()) << events.dump(1);
  const int64_t first = slice["on the CPU"]["args"]["id"];
  EXPECT_EQ(first + 1, slice["on a device"]["args"]["id"]);
  EXPECT_EQ(first + 2, slice["by token"]["args"]["id"]);
  EXPECT_EQ(first + 3, slice["after"]["args"]["id"]);
  EXPECT_EQ(
      3, std::count_if(events.begin(), events.end(), [](const json& event) { return event["ph"] == "s"; }));
}

TEST_F(Profiler, NamesAreEscaped) {
  e_.profiler_start();
  e_.push([] {}, {.name = "a \"quoted\" \\ name\nwith\ttabs"});
  e_.wait_all();
  EXPECT_TRUE(slices(trace()).contains("a \"quoted\" \\ name\nwith\ttabs"));
}

TEST_F(Profiler, FailedAndSkippedOperationsSaySo) {
  Var v = e_.new_var();
  e_.profiler_start();
  e_.push([] { throw std::runtime_error("no"); }, {.writes = {v}, .name = "failing"});
  e_.push([] {}, {.updates = {v}, .name = "behind"});
  test::error_of<OperationError>([&] { e_.wait(v); });
  test::error_of<OperationError>([&] { e_.wait_all(); });
  auto s = slices(trace());
  EXPECT_EQ("failed", s["failing"]["args"]["outcome"]);
  EXPECT_EQ("skipped", s["behind"]["args"]["outcome"]);
}

TEST_F(Profiler, DevicesAndReplaysAreSeen) {
  Var v = e_.new_var();
  Segment s = e_.record([&] { e_.push([] {}, {.updates = {v}, .name = "node"}); });
  e_.profiler_start();
  s.replay();
  e_.push([](RunContext rc) { rc.stream()->submit([](KernelContext&) {}); },
          {.updates = {v}, .context = virt(0), .name = "kernel"});
  e_.wait_all();
  auto seen = slices(trace());
  EXPECT_TRUE(seen.contains("node"));
  EXPECT_TRUE(seen.contains("kernel"));
}

TEST_F(Profiler, TimesAndMemoryOfDevicesAreSeen) {
  Device& device = get_device(virt(0));
  Var v = e_.new_var();
  e_.profiler_start();
  void* kept = nullptr;
  for (int i = 0; i < 3; ++i) {
    e_.push(
        [&, i](RunContext rc) {
          void* const memory = device.allocate(5000, rc.stream());
          rc.stream()->submit([](KernelContext&) {
            const int64_t begin = now_ns();
            while (now_ns() < begin + 200'000) std::this_thread::yield();
          });
          device.free(memory, rc.stream());
          if (i == 0) kept = device.allocate(7000, nullptr);
        },
        {.updates = {v}, .context = virt(0), .name = "kernel"});
  }
  e_.wait_all();
  e_.profiler_stop();
  const json events = trace();
  std::vector<json> times, samples;
  std::map<int, std::string> rows;
  for (const json& event : events) {
    if (event["ph"] == "X" && event_of_device(event)) times.push_back(event);
    if (event["ph"] == "C") samples.push_back(event);
    if (event["ph"] == "M" && event.contains("tid")) rows[event["tid"]] = event["args"]["name"];
  }
  ASSERT_EQ(3u, times.size());
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ("kernel", times[i]["name"]);
    EXPECT_GE(times[i]["dur"].get<double>(), 0);
    EXPECT_EQ(0u, rows[times[i]["tid"]].find("virt(0) stream ")) << rows[times[i]["tid"]];
    if (i > 0) {
      EXPECT_FALSE(overlap(times[i - 1], times[i]));
    }
  }
  const double last = times[2]["ts"].get<double>() + times[2]["dur"].get<double>();
  EXPECT_GE(last - times[0]["ts"].get<double>(), 3 * 199) << "in microseconds";
  ASSERT_EQ(3u, samples.size());
  for (const json& sample : samples) {
    EXPECT_EQ("virt(0) memory", sample["name"]);
    EXPECT_GE(sample["args"]["reserved"], sample["args"]["in use"]);
  }
  EXPECT_GE(samples.back()["args"]["in use"].get<int64_t>(), 7000);
  device.free(kept, nullptr);
}

TEST_F(Profiler, AnUnwritablePathIsAnError) {
  test::error_of<InvalidArgument>([&] { e_.write_trace("/nowhere/at/all.json"); });
}

// The disk is full, or a file size limit is reached.
TEST_F(Profiler, ATraceThatCannotBeWrittenLeavesTheOldFile) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(testing::TempDir()) / ("mx_traces_" + std::to_string(::getpid()));
  fs::create_directory(folder);
  const std::string path = folder / "trace.json";
  std::ofstream(path) << "the old one";
  e_.profiler_start();
  for (int i = 0; i < 1000; ++i) e_.push([] {}, {.name = "operation"});
  e_.wait_all();
  e_.profiler_stop();
  rlimit before{};
  ASSERT_EQ(0, ::getrlimit(RLIMIT_FSIZE, &before));
  const rlimit small{4096, before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(0, ::setrlimit(RLIMIT_FSIZE, &small));
  const std::string message = test::error_of<InvalidArgument>([&] { e_.write_trace(path); });
  ASSERT_EQ(0, ::setrlimit(RLIMIT_FSIZE, &before));
  std::signal(SIGXFSZ, handler);
  EXPECT_NE(std::string::npos, message.find("expected to write the whole of")) << message;
  const auto content = [&] {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  };
  EXPECT_EQ("the old one", content());
  EXPECT_EQ(1, std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
  e_.write_trace(path);
  EXPECT_TRUE(json::accept(content()));
  EXPECT_EQ(1, std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
  fs::remove_all(folder);
}

TEST_F(Profiler, APipeOrADeviceIsWrittenToAsItIs) {
  e_.write_trace("/dev/null");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  test::error_of<InvalidArgument>([&] { e_.write_trace("/dev/full"); });
}

TEST_F(Profiler, TheGraphHasTheLastOperations) {
  Var a = e_.new_var(), b = e_.new_var();
  for (int i = 0; i < 20; ++i) e_.push([] {}, {.updates = {a}, .name = "old"});
  e_.push([] {}, {.writes = {a}, .name = "root"});
  e_.push([] {}, {.reads = {a}, .writes = {b}, .name = "one"});
  e_.push([] {}, {.reads = {a}, .name = "two"});
  e_.push([] {}, {.updates = {a}, .name = "join"});
  e_.push([] {}, {.name = "alone"});
  e_.wait_all();
  std::ostringstream out;
  e_.write_dot(out);
  const std::string dot = out.str();
  size_t nodes = 0, edges = 0;
  std::istringstream lines(dot);
  for (std::string line; std::getline(lines, line);) {
    nodes += test::contains(line, "label=");
    edges += test::contains(line, "->");
  }
  EXPECT_EQ(5u, nodes) << dot;
  EXPECT_EQ(4u, edges) << dot;  // root to one and two, and both to join
  EXPECT_FALSE(test::contains(dot, "old"));
  EXPECT_EQ(0u, dot.find("digraph"));
}

TEST(Stats, AddUp) {
  Engine e(test::threaded_case(2).options);
  Var v = e.new_var();
  for (int i = 0; i < 100; ++i) e.push([] {}, {.updates = {v}});
  e.push([] { throw 1; }, {.updates = {v}});
  for (int i = 0; i < 10; ++i) e.push([] {}, {.updates = {v}});
  test::error_of<OperationError>([&] { e.wait_all(); });
  // A worker may still be returning although other threads have ended its operations.
  EngineStats stats = e.stats();
  for (; stats.running > 0; stats = e.stats()) std::this_thread::yield();
  EXPECT_EQ(111u, stats.pushed);
  EXPECT_EQ(111u, stats.completed);
  EXPECT_EQ(1u, stats.failed);
  EXPECT_EQ(10u, stats.skipped);
  EXPECT_EQ(0u, stats.ready + stats.running + stats.in_flight);
  EXPECT_EQ(1u, stats.vars);
  EXPECT_TRUE(test::contains(stats.to_string(), "111"));
}

}  // namespace
}  // namespace mx
