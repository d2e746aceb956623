// stream_bench: how well the engine distributes operations over the streams of an accelerator. Prints JSON
// lines with bench "stream":
//   NAME_makespan  time from the first begin to the last end of a known graph of equal operations, divided by
//                  the length of its longest path, in durations measured in the same run. 1 is the bound.
//   NAME_waits     number of event waits, divided by the smallest possible number.
//   enqueue_chain, enqueue_indep   host time per operation from the first push until the last of many empty
//                  operations is on its stream; system "bare" submits the same tasks directly to one stream.
//   launch_chain, launch_indep     the same with operations that launch an empty kernel; system "cuda"
//   launches the
//                  kernels with bare CUDA on one stream.
//   issue_chain, issue_indep       the same with operations that keep the issuing thread busy for 4 us, as
//   launches of a
//                  GPU do; 4,000 is the bound. Shows on any machine what the engine adds to launches.
//   replay_chain, replay_indep     time per operation of a recorded segment of 1,000 such operations, from
//   its replay
//                  until it has ended; system "cuda" launches a captured graph of 1,000 kernels in a row.
#include <algorithm>
#include <functional>
#include <latch>
#include <map>
#include <string>
#include <vector>

#include "benchmarks/stream/graphs.h"
#include "benchmarks/stream/work.h"
#include "benchmarks/support/clock.h"
#include "benchmarks/support/report.h"
#include "engine/base/cpus.h"
#include "engine/device/registry.h"
#include "engine/engine.h"
#include "examples/support/command_line.h"

namespace {

using namespace mx;
using namespace mx::bench;

constexpr int64_t kLaunchNs = 4000;

struct Measured {
  double makespan = 0, waits = 0;
};

Measured run_graph(Engine& engine, Context device, const TaskGraph& graph, int64_t duration_ns) {
  const size_t count = graph.inputs.size();
  const std::unique_ptr<Work> work = make_work(device, count);
  std::vector<Var> vars(count);
  for (Var& var : vars) var = engine.new_var();
  const uint64_t waits = engine.stats().stream_waits;
  engine.pause();  // so that all operations are known before the first is issued
  for (size_t i = 0; i < count; ++i) {
    std::vector<Var> reads;
    for (const int input : graph.inputs[i]) reads.push_back(vars[static_cast<size_t>(input)]);
    engine.push([&work, i, duration_ns](RunContext run) { work->enqueue(*run.stream(), i, duration_ns); },
                {.reads = reads, .writes = {vars[i]}, .context = device, .name = "node"});
  }
  engine.resume();
  engine.wait_all();

  int64_t first = INT64_MAX, last = 0, longest = 0;
  std::vector<int64_t> path(count);
  for (size_t i = 0; i < count; ++i) {
    const Span span = work->span(i);
    first = std::min(first, span.begin_ns);
    last = std::max(last, span.end_ns);
    for (const int input : graph.inputs[i]) path[i] = std::max(path[i], path[static_cast<size_t>(input)]);
    path[i] += span.end_ns - span.begin_ns;
    longest = std::max(longest, path[i]);
  }
  Measured measured;
  measured.makespan = static_cast<double>(last - first) / static_cast<double>(longest);
  const double fewest = graph.minimal_waits;
  const double used = static_cast<double>(engine.stats().stream_waits - waits);
  measured.waits = fewest > 0 ? used / fewest : 1 + used;
  for (const Var& var : vars) engine.delete_var(var);
  return measured;
}

std::vector<Var> make_vars(Engine& engine, size_t count) {
  std::vector<Var> vars(count);
  for (Var& var : vars) var = engine.new_var();
  return vars;
}

/// Host time for each of `count` operations that call `enqueue`, in a chain or independent.
double enqueue_ns(Engine& engine, Context device, size_t count, bool chain,
                  const std::function<void(Stream&)>& enqueue) {
  const std::vector<Var> vars = make_vars(engine, chain ? 1 : 1000);
  std::latch enqueued(static_cast<std::ptrdiff_t>(count));
  const int64_t begin = now_ns();
  for (size_t i = 0; i < count; ++i) {
    engine.push(
        [&](RunContext run) {
          enqueue(*run.stream());
          enqueued.count_down();
        },
        {.writes = {vars[i % vars.size()]}, .context = device, .name = "empty"});
  }
  enqueued.wait();
  const double each = static_cast<double>(now_ns() - begin) / static_cast<double>(count);
  engine.wait_all();
  for (const Var& var : vars) engine.delete_var(var);
  return each;
}

double replay_ns(Engine& engine, Context device, bool chain, const std::function<void(Stream&)>& enqueue) {
  constexpr size_t kOperations = 1000;
  const std::vector<Var> vars = make_vars(engine, chain ? 1 : kOperations);
  Segment segment = engine.record([&] {
    for (size_t i = 0; i < kOperations; ++i)
      engine.push([&](RunContext run) { enqueue(*run.stream()); },
                  {.writes = {vars[i % vars.size()]}, .context = device, .name = "empty"});
  });
  for (int i = 0; i < 2; ++i) segment.replay();  // captures and uploads
  engine.wait_all();
  const int64_t begin = now_ns();
  segment.replay();
  engine.wait_all();
  const double each = static_cast<double>(now_ns() - begin) / kOperations;
  for (const Var& var : vars) engine.delete_var(var);
  return each;
}

double bare_enqueue_ns(Context device, size_t count) {
  const std::unique_ptr<Stream> stream = get_device(device).new_stream();
  const int64_t begin = now_ns();
  for (size_t i = 0; i < count; ++i) stream->submit([](KernelContext&) {});
  const double each = static_cast<double>(now_ns() - begin) / static_cast<double>(count);
  stream->synchronize();
  return each;
}

}  // namespace

int main(int argc, char** argv) {
  std::string device_name = num_gpus() > 0 ? "gpu:0" : "virt:0";
  int rounds = 5, streams = 8;
  int64_t unit_us = 5000;
  size_t ops = 20'000;
  mx::examples::CommandLine line("Schedules on the streams of one device; JSON lines on stdout");
  line.option("--device", &device_name, "virt:N or gpu:N; by default the first GPU, if there is one")
      .checked("DEVICE", [](const std::string& text) {
        const size_t colon = text.find(':');
        const std::string kind = text.substr(0, colon);
        const bool good = colon != std::string::npos && (kind == "virt" || kind == "gpu") &&
                          colon + 1 < text.size() && text.size() < colon + 5 &&
                          text.find_first_not_of("0123456789", colon + 1) == std::string::npos;
        return good ? std::string() : "expected virt:N or gpu:N, got " + text;
      });
  line.option("--rounds", &rounds, "measurements of each; the median is printed").positive();
  line.option("--streams", &streams, "compute streams the engine may use").positive();
  line.option("--unit-us", &unit_us, "length of each operation of a graph").positive();
  line.option("--ops", &ops, "empty operations of enqueue_*").positive();
  if (const auto status = line.parse(argc, argv)) return *status;
  const size_t colon = device_name.find(':');
  const int number = std::stoi(device_name.substr(colon + 1));
  const Context device = device_name.starts_with("gpu") ? gpu(number) : virt(number);

  try {
    get_device(device);
    EngineOptions options;
    options.compute_streams = streams;
    Engine engine(options);
    const std::vector<TaskGraph> graphs = known_graphs();
    std::map<std::pair<std::string, std::string>, std::vector<double>> samples;  // by case and system
    std::map<std::string, std::string> units;
    const auto note = [&](const std::string& name, const char* system, const char* unit, double value) {
      samples[{name, system}].push_back(value);
      units[name] = unit;
    };
    for (int round = 0; round < rounds; ++round) {
      for (const TaskGraph& graph : graphs) {
        const Measured measured = run_graph(engine, device, graph, unit_us * 1000);
        note(graph.name + "_makespan", "mx", "x longest path", measured.makespan);
        note(graph.name + "_waits", "mx", "x fewest", measured.waits);
      }
      note("enqueue_chain", "bare", "ns/op", bare_enqueue_ns(device, ops));
      const std::unique_ptr<Work> work = make_work(device, 1);
      const auto nothing = [](Stream& stream) { stream.submit([](KernelContext&) {}); };
      const auto kernel = [&work](Stream& stream) { work->enqueue_empty(stream); };
      for (const bool chain : {true, false}) {
        const std::string kind = chain ? "chain" : "indep";
        note("enqueue_" + kind, "mx", "ns/op", enqueue_ns(engine, device, ops, chain, nothing));
        note("launch_" + kind, "mx", "ns/op", enqueue_ns(engine, device, ops, chain, kernel));
        const auto slow = [](Stream& stream) {
          busy_wait_ns(kLaunchNs);
          stream.submit([](KernelContext&) {});
        };
        note("issue_" + kind, "mx", "ns/op", enqueue_ns(engine, device, ops, chain, slow));
        note("replay_" + kind, "mx", "ns/op", replay_ns(engine, device, chain, kernel));
        if (device.kind != DeviceKind::gpu) continue;
        note("launch_" + kind, "cuda", "ns/op", bare_launch_ns(number, ops, false));
        note("replay_" + kind, "cuda", "ns/op", bare_launch_ns(number, 1000, true));
      }
    }
    for (const auto& [key, values] : samples) {
      print({"stream", key.first, key.second, usable_cpus(), units[key.first], summarize(values)});
    }
  } catch (const std::exception& e) {
    note(std::string("stream_bench: ") + e.what());
    return 1;
  }
}
