// gemm_bench: products of matrices by our kernels, and by oneDNN and OpenBLAS if they are installed.
// Prints JSON lines with bench "gemm", in GFLOP/s. Cases: type, layout (n or t for each operand), size: one
// number for square matrices, else M x N x K.
//
// The systems alternate within a round, and the medians over the rounds are printed. The peak of the
// processor is measured in the same rounds.
#include <tbb/global_control.h>
#include <unistd.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "benchmarks/gemm/peers.h"
#include "benchmarks/op/bandwidth.h"
#include "benchmarks/support/clock.h"
#include "benchmarks/support/process.h"
#include "benchmarks/support/report.h"
#include "examples/support/command_line.h"
#include "ndarray/kernels/parallel.h"
#include "operators/kernels/gemm.h"

namespace {

using namespace mx::bench;

struct Options {
  int rounds = 9;
  int sample_ms = 20;
  bool cpu_time = false;
  std::vector<std::string> sizes = {"16", "64", "256", "1024", "2048"};
  std::vector<std::string> types = {"f32", "f64"};
  std::vector<std::string> layouts = {"nn", "nt", "tn", "tt"};
  std::vector<int> threads = {1, 2};
};

struct System {
  std::string name;
  std::function<void()> product;
  std::vector<double> samples{};
};

/// Returns GFLOP/s over at least `ms` milliseconds of wall time, or of the calling thread's processor time if
/// `cpu_time`.
double sample(const std::function<void()>& product, double flops, int ms, bool cpu_time) {
  const auto now = cpu_time ? thread_cpu_ns : now_ns;
  const int64_t start = now(), enough = int64_t{ms} * 1'000'000;
  int64_t runs = 0, elapsed = 0;
  while (elapsed < enough) {
    // Enough calls at a time for the clock's cost to be negligible.
    const int64_t batch = flops < 1e6 ? 256 : 1;
    for (int64_t i = 0; i < batch; ++i) product();
    runs += batch;
    elapsed = now() - start;
  }
  return flops * static_cast<double>(runs) / static_cast<double>(elapsed);
}

/// Returns GFLOP/s of multiply-adds in registers in the calling thread.
double fma_peak() {
  constexpr int64_t kRounds = 2'000'000;
  float value = 1;
  const int64_t start = thread_cpu_ns();
  const double flops = fma_rounds(kRounds, &value) * kRounds;
  asm volatile("" ::"m"(value));
  return flops / static_cast<double>(thread_cpu_ns() - start);
}

/// Reads a number, or three with "x" between them.
std::optional<GemmSize> parse_size(const std::string& text) {
  GemmSize size{};
  int64_t* const parts[] = {&size.m, &size.n, &size.k};
  const char* at = text.data();
  const char* const end = at + text.size();
  for (int i = 0; i < 3; ++i) {
    const auto [stop, error] = std::from_chars(at, end, *parts[i]);
    if (error != std::errc() || *parts[i] <= 0) return std::nullopt;
    if (i == 0 && stop == end) return GemmSize{size.m, size.m, size.m};
    if (i < 2 ? (stop == end || *stop != 'x') : stop != end) return std::nullopt;
    at = stop + 1;
  }
  return size;
}

template <class T>
void measure(const Options& options, const std::string& type, const std::string& layout,
             const std::string& size_text, int threads) {
  const bool ta = layout[0] == 't', tb = layout[1] == 't';
  const std::optional<GemmSize> parsed = parse_size(size_text);
  if (!parsed) {
    note("gemm_bench: expected a size like 256 or 1024x128x512, got " + size_text);
    std::exit(2);
  }
  const GemmSize size = *parsed;
  const auto [m, n, k] = size;
  std::vector<T> a(static_cast<size_t>(m * k)), b(static_cast<size_t>(k * n)), c(static_cast<size_t>(m * n)),
      first;
  std::minstd_rand random(1);
  std::uniform_real_distribution<T> uniform(-1, 1);
  for (T& x : a) x = uniform(random);
  for (T& x : b) x = uniform(random);

  std::vector<System> systems;
  systems.push_back({"mx", [&] {
                       const mx::kernels::Matrix ma{a.data(), ta ? 1 : size.k, ta ? size.m : 1};
                       const mx::kernels::Matrix mb{b.data(), tb ? 1 : size.n, tb ? size.k : 1};
                       mx::kernels::gemm(mx::dtype_of<T>, size.m, size.n, size.k, ma, mb, c.data(), size.n,
                                         1);
                     }});
  for (const GemmPeer& peer : gemm_peers()) {
    if constexpr (std::is_same_v<T, float>) {
      if (const auto f = peer.sgemm)
        systems.push_back({peer.name, [&, f] { f(ta, tb, size, a.data(), b.data(), c.data()); }});
    } else {
      if (const auto f = peer.dgemm)
        systems.push_back({peer.name, [&, f] { f(ta, tb, size, a.data(), b.data(), c.data()); }});
    }
    peer.set_threads(threads);
  }
  for (const System& s : systems) {  // warm-up, and a check that the systems agree
    s.product();
    s.product();
    if (first.empty()) first = c;
    for (size_t i = 0; i < c.size(); ++i) {
      if (std::abs(c[i] - first[i]) > 1e-4 * static_cast<double>(k)) {
        note("gemm_bench: " + s.name + " differs from mx at " + type + " " + layout + " " + size_text);
        std::exit(1);
      }
    }
  }
  const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  std::vector<double> peak;
  for (int round = 0; round < options.rounds; ++round) {
    std::vector<double> each(static_cast<size_t>(threads));
    mx::parallel_for(threads, 1, [&](int64_t i, int64_t) { each[static_cast<size_t>(i)] = fma_peak(); });
    double sum = 0;
    for (const double g : each) sum += g;
    peak.push_back(type == "f64" ? sum / 2 : sum);
    for (System& s : systems)
      s.samples.push_back(sample(s.product, flops, options.sample_ms, options.cpu_time && threads == 1));
  }
  const std::string name = type + "_" + layout + "_" + size_text;
  for (const System& s : systems) print({"gemm", name, s.name, threads, "GFLOP/s", summarize(s.samples)});
  print({"gemm", name, "peak", threads, "GFLOP/s", summarize(peak)});
}

/// Names the core for OpenBLAS, which mistakes newer processors for older ones. It reads its environment
/// before main.
void name_core_for_openblas(char** argv) {
#if defined(__x86_64__)
  if (std::getenv("OPENBLAS_CORETYPE") != nullptr || !__builtin_cpu_supports("avx512f")) return;
  setenv("OPENBLAS_CORETYPE", "SkylakeX", 1);
  execv(self_path().c_str(), argv);
#else
  (void)argv;
#endif
}

}  // namespace

int main(int argc, char** argv) {
  name_core_for_openblas(argv);
  Options options;
  mx::examples::CommandLine line("Measures matrix products beside other libraries; JSON lines on stdout");
  line.option("--rounds", &options.rounds, "samples of each system; the median is printed").positive();
  line.option("--sample-ms", &options.sample_ms, "least length of a sample").positive();
  line.flag("--cpu-time", options.cpu_time,
            "with one thread, count its processor time instead of the clock's: for a busy machine");
  line.option("--sizes", &options.sizes, "rows and columns: 256, or 1024x128x512 for M x N x K");
  line.option("--types", &options.types, "f32, f64");
  line.option("--layouts", &options.layouts, "nn, nt, tn, tt");
  line.option("--threads", &options.threads, "numbers of threads");
  if (const auto status = line.parse(argc, argv)) return *status;

  const auto cpus = static_cast<int>(allowed_cpus().size());
  for (const int threads : options.threads) {
    if (threads > cpus) {
      note("gemm_bench: " + std::to_string(cpus) + " processors only; " + std::to_string(threads) +
           " threads are left out");
      continue;
    }
    const tbb::global_control limit(tbb::global_control::max_allowed_parallelism,
                                    static_cast<size_t>(threads));
    for (const std::string& type : options.types)
      for (const std::string& layout : options.layouts)
        for (const std::string& n : options.sizes) {
          if (type == "f32") measure<float>(options, type, layout, n, threads);
          if (type == "f64") measure<double>(options, type, layout, n, threads);
        }
  }
}
