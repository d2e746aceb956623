// elementwise_bench: elementwise kernels, and copies of as many bytes for comparison. Prints JSON lines with
// bench "elementwise": GB/s of all bytes read and written, and nanoseconds for the smallest arrays.
//
// The limits of the same run are the systems "memcpy" and "stream" (a copy with non-temporal stores). Copies
// count the bytes read and written, like every other case.
#include <tbb/task_arena.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/support/clock.h"
#include "benchmarks/support/process.h"
#include "benchmarks/support/report.h"
#include "examples/support/command_line.h"
#include "ndarray/kernels/convert_rows.h"
#include "ndarray/kernels/copy.h"
#include "ndarray/kernels/parallel.h"
#include "operators/kernels/binary.h"
#include "operators/kernels/unary.h"

namespace {

using namespace mx;
using namespace mx::bench;

struct Free {
  void operator()(void* p) const { std::free(p); }
};

/// An array of float32 between -4 and 4, on its own pages.
struct Array {
  std::unique_ptr<void, Free> memory;
  Tensor tensor;
  explicit Array(int64_t n) : Array(Shape{n}) {}
  explicit Array(const Shape& shape) {
    const auto bytes = static_cast<size_t>(shape.numel()) * 4;
    memory.reset(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
    tensor = {memory.get(), f32, shape, contiguous_strides(shape)};
    for (int64_t i = 0; i < shape.numel(); ++i)
      tensor.as<float>()[i] = static_cast<float>(i * 7919 % 8191) / 1024.f - 4.f;
  }
};

struct Case {
  std::string name, system;
  int operands;  // number of arrays read and written
  std::function<void(const Tensor& out, const Tensor& a, const Tensor& b)> run;
};

std::vector<Case> cases() {
  using U = kernels::UnaryOp;
  using B = kernels::BinaryOp;
  std::vector<Case> list = {
      {"copy", "memcpy", 2,
       [](const Tensor& out, const Tensor& a, const Tensor&) {
         parallel_for(out.numel(), 32768, [&](int64_t begin, int64_t end) {
           std::memcpy(out.as<float>() + begin, a.as<float>() + begin, static_cast<size_t>(end - begin) * 4);
         });
       }},
      {"copy", "stream", 2,
       [](const Tensor& out, const Tensor& a, const Tensor&) {
         parallel_for(out.numel(), 32768, [&](int64_t begin, int64_t end) {
           kernels::stream_row(out.as<float>() + begin, a.as<float>() + begin, (end - begin) * 4);
           kernels::stream_fence();
         });
       }},
      {"copy", "mx", 2, [](const Tensor& out, const Tensor& a, const Tensor&) { kernels::copy(out, a); }},
  };
  for (const B op : {B::add, B::mul})
    list.push_back({to_string(op), "mx", 3, [op](const Tensor& out, const Tensor& a, const Tensor& b) {
                      kernels::binary(op, out, a, b);
                    }});
  for (const U op : {U::relu, U::exp, U::tanh, U::log, U::sigmoid, U::gelu})
    list.push_back({to_string(op), "mx", 2,
                    [op](const Tensor& out, const Tensor& a, const Tensor&) { kernels::unary(op, out, a); }});
  return list;
}

/// Returns the seconds of one run; repeats it long enough for the clock's cost to be negligible.
double seconds(const std::function<void()>& run, int64_t repeats) {
  const int64_t start = now_ns();
  for (int64_t i = 0; i < repeats; ++i) run();
  return static_cast<double>(now_ns() - start) * 1e-9 / static_cast<double>(repeats);
}

}  // namespace

int main(int argc, char** argv) {
  int rounds = 7;
  std::string only;
  mx::examples::CommandLine line("Measures elementwise kernels against copying; JSON lines on stdout");
  line.option("--rounds", &rounds, "interleaved measurements of each; the median is printed").positive();
  line.option("--case", &only, "only this case, such as exp");
  if (const auto status = line.parse(argc, argv)) return *status;

  const int processors = static_cast<int>(allowed_cpus().size());
  std::vector<Case> list = cases();
  if (!only.empty()) std::erase_if(list, [&](const Case& c) { return c.name != only && c.name != "copy"; });
  struct Size {
    const char* name;
    int64_t bytes;
  };
  for (const Size size : {Size{"16KiB", 16 << 10}, Size{"256KiB", 256 << 10}, Size{"64MiB", 64 << 20}}) {
    const Array out(size.bytes / 4), a(size.bytes / 4), b(size.bytes / 4);
    const int64_t repeats = std::max<int64_t>(1, (int64_t{16} << 20) / size.bytes);
    for (int threads = 1; threads <= std::min(2, processors); ++threads) {
      tbb::task_arena arena(threads);
      std::vector<std::vector<double>> samples(list.size());
      arena.execute([&] {
        for (int round = 0; round < rounds + 1; ++round) {
          for (size_t i = 0; i < list.size(); ++i) {
            const double s = seconds([&] { list[i].run(out.tensor, a.tensor, b.tensor); }, repeats);
            if (round > 0)
              samples[i].push_back(static_cast<double>(list[i].operands * size.bytes) / s * 1e-9);
          }
        }
      });
      for (size_t i = 0; i < list.size(); ++i)
        print({"elementwise", list[i].name + "_" + size.name, list[i].system, threads, "GB/s",
               summarize(samples[i])});
    }
  }

  // The cost of a call with almost nothing to compute.
  const Array out(Shape{2, 2}), a(Shape{2, 2}), b(Shape{2, 2});
  std::vector<double> add, exp;
  for (int round = 0; round < rounds; ++round) {
    add.push_back(
        1e9 *
        seconds([&] { kernels::binary(kernels::BinaryOp::add, out.tensor, a.tensor, b.tensor); }, 200'000));
    exp.push_back(1e9 *
                  seconds([&] { kernels::unary(kernels::UnaryOp::exp, out.tensor, a.tensor); }, 200'000));
  }
  print({"elementwise", "add_2x2", "mx", 1, "ns", summarize(add)});
  print({"elementwise", "exp_2x2", "mx", 1, "ns", summarize(exp)});

  const int64_t side = 2048;
  const Array target(Shape{side, side}), source(Shape{side, side});
  Tensor turned = source.tensor;
  std::swap(turned.strides[0], turned.strides[1]);
  std::vector<double> across, straight;
  for (int round = 0; round < rounds; ++round) {
    const double bytes = 2.0 * 4 * side * side * 1e-9;
    across.push_back(bytes / seconds([&] { kernels::copy(target.tensor, turned); }, 4));
    straight.push_back(bytes / seconds([&] { kernels::copy(target.tensor, source.tensor); }, 4));
  }
  print({"elementwise", "transpose_2048", "mx", processors, "GB/s", summarize(across)});
  print({"elementwise", "copy_2048", "mx", processors, "GB/s", summarize(straight)});
}
