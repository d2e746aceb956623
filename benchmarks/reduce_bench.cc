// reduce_bench: the bandwidth of reductions, softmax, cross entropy and fused updates, compared with that of
// the memory.
//
// Prints JSON lines in GB/s: the bytes that the case must at least read and write, divided by the time. The
// cases of system "limit" are the machine's limits in the same rounds: reading, copying, copying with
// non-temporal stores.
#include <tbb/global_control.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/op/bandwidth.h"
#include "benchmarks/support/clock.h"
#include "benchmarks/support/process.h"
#include "benchmarks/support/report.h"
#include "examples/support/command_line.h"
#include "ndarray/kernels/copy.h"
#include "ndarray/kernels/parallel.h"
#include "operators/kernels/loss.h"
#include "operators/kernels/reduce.h"
#include "operators/kernels/scan.h"
#include "operators/kernels/softmax.h"
#include "operators/kernels/update.h"

namespace {

using namespace mx;

constexpr int64_t kLimitGrain = int64_t{1} << 20;

struct Buffer {
  std::unique_ptr<float[], void (*)(float*)> memory;
  explicit Buffer(int64_t bytes)
      : memory(static_cast<float*>(std::aligned_alloc(64, static_cast<size_t>(bytes))),
               [](float* p) { std::free(p); }) {
    for (int64_t i = 0; i < bytes / 4; ++i)
      memory[static_cast<size_t>(i)] = static_cast<float>(i * 7 % 13) * 0.25f;
  }
  Tensor view(const Shape& shape, DType type = f32) const {
    return {memory.get(), type, shape, contiguous_strides(shape)};
  }
};

struct Case {
  std::string name, system;
  double bytes;
  std::function<void()> run;
};

void add_limits(std::vector<Case>& cases, const std::string& size, const Buffer& from, const Buffer& to,
                int64_t bytes) {
  const char* const in = reinterpret_cast<const char*>(from.memory.get());
  char* const out = reinterpret_cast<char*>(to.memory.get());
  const double total = static_cast<double>(bytes);
  cases.push_back({"read_" + size, "limit", total, [=] {
                     parallel_for(bytes, kLimitGrain, [=](int64_t begin, int64_t end) {
                       uint64_t sum = bench::read_bytes(in + begin, static_cast<size_t>(end - begin));
                       asm volatile("" : "+r"(sum));
                     });
                   }});
  cases.push_back({"copy_" + size, "limit", 2 * total, [=] {
                     parallel_for(bytes, kLimitGrain, [=](int64_t begin, int64_t end) {
                       std::memcpy(out + begin, in + begin, static_cast<size_t>(end - begin));
                     });
                   }});
  cases.push_back({"copy_streaming_" + size, "limit", 2 * total, [=] {
                     parallel_for(bytes, kLimitGrain, [=](int64_t begin, int64_t end) {
                       bench::copy_non_temporal(out + begin, in + begin, static_cast<size_t>(end - begin));
                     });
                   }});
}

void add_reductions(std::vector<Case>& cases, const std::string& size, const Buffer& in, const Buffer& out,
                    int64_t side, DType type) {
  using kernels::ReduceOp;
  const std::string suffix = (type == f32 ? "" : std::string("_") + to_string(type)) + "_" + size;
  const double bytes = static_cast<double>(side * side) * static_cast<double>(size_of(type));
  for (ReduceOp op :
       {ReduceOp::sum, ReduceOp::max, ReduceOp::mean, ReduceOp::argmax, ReduceOp::var, ReduceOp::logsumexp}) {
    if (type != f32 && op != ReduceOp::sum) continue;
    const DType result = kernels::reduce_result(op, type);
    const std::string name = kernels::to_string(op);
    const Tensor x = in.view({side, side}, type);
    cases.push_back({name + "_last" + suffix, "mx", bytes,
                     [=, y = out.view({side}, result)] { kernels::reduce(op, y, x, {1}); }});
    cases.push_back({name + "_first" + suffix, "mx", bytes,
                     [=, y = out.view({side}, result)] { kernels::reduce(op, y, x, {0}); }});
    cases.push_back({name + "_all" + suffix, "mx", bytes,
                     [=, y = out.view({}, result)] { kernels::reduce(op, y, x, {}); }});
  }
}

/// Returns the seconds of one call, measured over as many calls as take about a millisecond, at least one.
double seconds(const Case& c, bool processor_time) {
  int64_t calls = 1;
  for (;;) {
    const double start = processor_time ? bench::process_cpu_s() * 1e9 : static_cast<double>(bench::now_ns());
    for (int64_t i = 0; i < calls; ++i) c.run();
    const double ns =
        (processor_time ? bench::process_cpu_s() * 1e9 : static_cast<double>(bench::now_ns())) - start;
    if (ns >= 1e6) return ns * 1e-9 / static_cast<double>(calls);
    calls *= 4;
  }
}

}  // namespace

int main(int argc, char** argv) {
  int rounds = 7;
  std::string only;
  bool processor_time = false;
  mx::examples::CommandLine line(
      "Measures reductions and row kernels against the memory's bandwidth; JSON lines on stdout");
  line.option("--rounds", &rounds, "interleaved measurements of each; the median is printed").positive();
  line.option("--only", &only, "cases whose name has this part, and the limits");
  line.flag("--processor-time", processor_time,
            "one thread, timed by what the process used: where others keep the machine busy");
  if (const auto status = line.parse(argc, argv)) return *status;

  constexpr int64_t kLarge = int64_t{64} << 20, kClasses = 128, kRows = kLarge / 4 / kClasses;
  const Buffer a(kLarge), b(kLarge), c(kLarge), d(kLarge);
  std::vector<Case> cases;
  for (const auto& [size, side] :
       {std::pair<const char*, int64_t>{"16KiB", 64}, {"256KiB", 256}, {"64MiB", 4096}}) {
    add_limits(cases, size, a, b, side * side * 4);
    add_reductions(cases, size, a, b, side, f32);
  }
  for (DType type : {f16, bf16, i32}) add_reductions(cases, "large", a, b, 4096, type);

  const double large = static_cast<double>(kLarge);
  std::vector<int64_t> labels(static_cast<size_t>(kRows));
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<int64_t>(i % kClasses);
  float one = 1, loss = 0;
  const Tensor x = a.view({kRows, kClasses}), y = b.view({kRows, kClasses}), z = c.view({kRows, kClasses});
  const Tensor target{labels.data(), i64, {kRows}, {1}}, seed{&one, f32, {}, {}}, result{&loss, f32, {}, {}};
  cases.push_back({"softmax_128_64MiB", "mx", 2 * large, [=] { kernels::softmax(y, x, 1); }});
  cases.push_back({"log_softmax_128_64MiB", "mx", 2 * large, [=] { kernels::log_softmax(y, x, 1); }});
  cases.push_back(
      {"softmax_backward_128_64MiB", "mx", 3 * large, [=] { kernels::softmax_backward(z, y, x, 1); }});
  cases.push_back({"softmax_first_64MiB", "mx", 2 * large,
                   [=, p = a.view({4096, 4096}), q = b.view({4096, 4096})] { kernels::softmax(q, p, 0); }});
  cases.push_back(
      {"cross_entropy_128_64MiB", "mx", large, [=] { kernels::cross_entropy(result, x, target); }});
  cases.push_back({"cross_entropy_backward_128_64MiB", "mx", 2 * large,
                   [=] { kernels::cross_entropy_backward(y, seed, x, target); }});
  cases.push_back({"cumsum_64MiB", "mx", 2 * large, [=, p = a.view({kLarge / 4}), q = b.view({kLarge / 4})] {
                     kernels::scan(kernels::ScanOp::cumsum, q, p, 0);
                   }});
  const Tensor w = a.view({kLarge / 4}), m = c.view({kLarge / 4}), v = d.view({kLarge / 4}),
               g = b.view({kLarge / 4});
  const kernels::UpdateCommon common{.learning_rate = seed, .scale = nullptr, .clip = 0, .weight_decay = 0};
  cases.push_back({"adam_64MiB", "mx", 7 * large, [=] {
                     kernels::adam_update({{&w, 1}, {&g, 1}}, {&m, 1}, {&v, 1}, common, {.step = &seed});
                   }});
  cases.push_back({"sgd_momentum_64MiB", "mx", 5 * large, [=] {
                     kernels::sgd_update({{&w, 1}, {&g, 1}}, {&m, 1}, common, {.momentum = 0.9});
                   }});

  const int processors = processor_time ? 1 : static_cast<int>(bench::allowed_cpus().size());
  for (int threads = 1; threads <= std::min(2, processors); ++threads) {
    tbb::global_control limit(tbb::global_control::max_allowed_parallelism, static_cast<size_t>(threads));
    tbb::task_arena arena(threads);
    std::vector<std::vector<double>> samples(cases.size());
    for (int round = -1; round < rounds; ++round) {
      for (size_t i = 0; i < cases.size(); ++i) {
        if (cases[i].system != "limit" && cases[i].name.find(only) == std::string::npos) continue;
        // The values that a case has written, above all an update, must not become NaN or subnormal for the
        // next case.
        if (cases[i].name.find("adam") != std::string::npos)
          for (const Tensor& t : {w, m, v, g}) kernels::fill(t, 0.5);
        double time = 0;
        arena.execute([&] { time = seconds(cases[i], processor_time); });
        if (round >= 0) samples[i].push_back(cases[i].bytes / time * 1e-9);
      }
    }
    for (size_t i = 0; i < cases.size(); ++i)
      if (!samples[i].empty())
        bench::print(
            {"reduce", cases[i].name, cases[i].system, threads, "GB/s", bench::summarize(samples[i])});
  }
}
