// op_bench_limits: the limits of memory and arithmetic units, to be run between the operator benchmarks.
// Cases copy/<size> (memcpy), copy_nt/<size> (non-temporal stores), read/<size>, add/<size> and add_nt/<size>
// (a plain loop), counted as in op_cases.h, and fma (multiply-adds in registers). All of them run whatever
// --cases names, unless it names some of them.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "benchmarks/op/bandwidth.h"
#include "benchmarks/op/runner.h"
#include "benchmarks/op/team.h"

namespace {

using namespace mx::bench;

struct Free {
  void operator()(float* p) const { std::free(p); }
};

// Aligned to a huge page, like the memory of a good allocator.
std::shared_ptr<float> array(int64_t count, uint32_t seed) {
  constexpr size_t kAlignment = 2 << 20;
  const size_t bytes =
      (static_cast<size_t>(count) * sizeof(float) + kAlignment - 1) / kAlignment * kAlignment;
  std::shared_ptr<float> memory(static_cast<float*>(std::aligned_alloc(kAlignment, bytes)), Free());
  fill_op_input(memory.get(), count, seed);
  return memory;
}

OpCall prepare(const OpCase& c, int threads) {
  const auto team = std::make_shared<Team>(threads);
  if (c.op == "fma") {
    const int64_t rounds = c.elements / threads;
    return [team, rounds] {
      team->run([rounds](int) {
        float value = 1;
        fma_rounds(rounds, &value);
        asm volatile("" ::"m"(value));
      });
    };
  }
  const auto a = array(c.elements, 1), b = array(c.elements, 2), to = array(c.elements, 3);
  const auto part = static_cast<size_t>(c.elements / threads);
  return [=, op = c.op] {
    team->run([&](int thread) {
      const size_t at = part * static_cast<size_t>(thread);
      float* out = to.get() + at;
      const float *x = a.get() + at, *y = b.get() + at;
      if (op == "copy") std::memcpy(out, x, part * sizeof(float));
      if (op == "copy_nt") copy_non_temporal(out, x, part * sizeof(float));
      if (op == "add") add_floats(out, x, y, part);
      if (op == "add_nt") add_floats_non_temporal(out, x, y, part);
      if (op == "read") {
        const uint64_t sum = read_bytes(x, part * sizeof(float));
        asm volatile("" ::"r"(sum));
      }
    });
  };
}

constexpr int64_t kFmaRounds = 4096;  // of all threads together

std::vector<OpCase> cases() {
  std::vector<OpCase> all;
  float sink = 1;
  all.push_back({"fma", "fma", kFmaRounds, 0, fma_rounds(1, &sink) * kFmaRounds, "GFLOP/s"});
  for (const OpCase& c : op_cases()) {
    if (c.op != "add") continue;
    const std::string size = c.name.substr(c.name.find('/'));
    const auto bytes = static_cast<double>(c.elements) * sizeof(float);
    all.push_back({"copy" + size, "copy", c.elements, 0, 2 * bytes, "GB/s"});
    all.push_back({"copy_nt" + size, "copy_nt", c.elements, 0, 2 * bytes, "GB/s"});
    all.push_back({"read" + size, "read", c.elements, 0, bytes, "GB/s"});
    all.push_back({"add" + size, "add", c.elements, 0, 3 * bytes, "GB/s"});
    all.push_back({"add_nt" + size, "add_nt", c.elements, 0, 3 * bytes, "GB/s"});
  }
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  OpSystem system{.bench = "limits", .name = "machine", .cases = cases(), .prepare = prepare, .limits = true};
  return run_op_bench(argc, argv, system);
}
