// A real task for the engine without arrays: factorises a symmetric positive definite matrix, A = L L^T, tile
// by tile.
//
// The program is a serial list of kernel calls (cholesky/factorise.cc). It runs twice: in order on one
// thread, and through the engine, which knows only which tiles each call reads and updates. The results
// must agree bit for bit, and L L^T must equal A up to rounding; otherwise the exit status is 1.
#include <mx/engine.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "engine/base/check.h"
#include "engine/base/cpus.h"
#include "examples/cholesky/factorise.h"
#include "examples/support/command_line.h"

namespace {

struct Options {
  int64_t n = 4096;
  int64_t tile = 256;
  int threads = 0;
  double max_residual = 0;
  bool serial = true;
  std::string trace;
};

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Prints one line per stage: a progress bar while it runs (on a terminal), then the time it took.
class Stage {
 public:
  explicit Stage(const char* name) : name_(name), visible_(isatty(STDOUT_FILENO) != 0) { show(0); }

  void show(double fraction) {
    constexpr int kWidth = 40;
    const int percent = static_cast<int>(fraction * 100);
    if (!visible_ || percent == percent_) return;
    percent_ = percent;
    const int filled = static_cast<int>(fraction * kWidth);
    std::printf("\r  %-10s [%s%s] %3d%%", name_, std::string(static_cast<size_t>(filled), '#').c_str(),
                std::string(static_cast<size_t>(kWidth - filled), '.').c_str(), percent);
    std::fflush(stdout);
  }

  void done(const std::string& text) {
    std::printf("%s  %-10s %s\n", visible_ ? "\r\033[K" : "", name_, text.c_str());
    std::fflush(stdout);
  }

 private:
  const char* name_;
  bool visible_;
  int percent_ = -1;
};

std::string format(const char* pattern, auto... values) {
  char text[256];
  std::snprintf(text, sizeof(text), pattern, values...);
  return text;
}

std::string speed(int64_t n, double seconds) {
  const double flops = static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) / 3;
  return format("%7.3f s  %7.1f GFLOP/s", seconds, flops / seconds * 1e-9);
}

double run_serially(const cholesky::TiledMatrix& matrix) {
  Stage stage("serial");
  const Stopwatch watch;
  const std::vector<cholesky::Step> steps = cholesky::steps(matrix.tiles());
  for (size_t s = 0; s < steps.size(); ++s) {
    cholesky::run(steps[s], matrix);
    stage.show(static_cast<double>(s + 1) / static_cast<double>(steps.size()));
  }
  const double seconds = watch.seconds();
  stage.done(speed(matrix.n(), seconds) + "  1 thread, in order");
  return seconds;
}

double run_on_engine(mx::Engine& engine, const cholesky::TiledMatrix& matrix, const cholesky::TileVars& vars,
                     int threads) {
  Stage stage("engine");
  const Stopwatch watch;
  const uint64_t before = engine.stats().completed;
  cholesky::push_factorisation(engine, matrix, vars);
  const double pushed = static_cast<double>(engine.stats().pushed - before);
  constexpr int64_t kLookMs = 50;
  while (!engine.wait_all(kLookMs)) {
    stage.show(static_cast<double>(engine.stats().completed - before) / pushed);
  }
  const double seconds = watch.seconds();
  stage.done(speed(matrix.n(), seconds) +
             format("  %d thread%s, as dependencies allow", threads, threads == 1 ? "" : "s"));
  return seconds;
}

/// Throws InvalidArgument if no trace can be written at `path`, before minutes of work. Changes nothing
/// there. (examples/support/writable.h, which other examples use, needs more than the engine.)
void require_writable_trace(const std::string& path) {
  std::error_code ignored;
  // A trace that is written to a pipe or a device makes no new file.
  if (path.empty() || std::filesystem::is_other(path, ignored)) return;
  MX_CHECK(!std::filesystem::is_directory(path, ignored), mx::InvalidArgument,
           "[--trace] expected a file, got the folder '", path, '\'');
  const std::string probe = path + '.' + std::to_string(getpid()) + ".part";
  const bool writable = std::ofstream(probe).is_open();
  const int reason = errno;
  std::filesystem::remove(probe, ignored);
  MX_CHECK(writable, mx::InvalidArgument, "[--trace] expected a writable file, got '", path,
           "': ", std::strerror(reason));
}

bool run(const Options& options) {
  require_writable_trace(options.trace);
  // Declared before the engine: the engine is destroyed first and has drained when these go, also after an
  // exception.
  const cholesky::TiledMatrix parallel(options.n, options.tile);
  const cholesky::TiledMatrix serial(options.n, options.tile);

  mx::EngineOptions engine_options = mx::EngineOptions::from_environment();
  if (options.threads > 0) engine_options.threads = options.threads;
  mx::Engine engine(engine_options);
  const int threads = engine_options.threads > 0 ? engine_options.threads : mx::usable_cpus();
  const cholesky::TileVars vars(engine, parallel);

  std::printf(
      "Cholesky factorisation of a %lld x %lld matrix (float64): %zu operations on %lld tiles of %lld\n",
      static_cast<long long>(options.n), static_cast<long long>(options.n),
      cholesky::steps(parallel.tiles()).size(), static_cast<long long>(parallel.stored()),
      static_cast<long long>(options.tile));
  std::printf("  %-10s %s\n", "kernels", cholesky::instruction_set());

  double serial_seconds = 0;
  if (options.serial) {
    const cholesky::TileVars serial_vars(engine, serial);
    cholesky::push_fill(engine, serial, serial_vars);
    engine.wait_all();
    serial_seconds = run_serially(serial);
  }

  cholesky::push_fill(engine, parallel, vars);
  engine.wait_all();
  if (!options.trace.empty()) engine.profiler_start();
  const double engine_seconds = run_on_engine(engine, parallel, vars, threads);
  if (!options.trace.empty()) {
    engine.profiler_stop();
    engine.write_trace(options.trace);
  }

  bool good = true;
  if (options.serial) {
    std::printf("  %-10s %7.2f x\n", "speed-up", serial_seconds / engine_seconds);
    const bool same = cholesky::same_bits(parallel, serial);
    std::printf("  %-10s %s\n", "same bits",
                same ? "yes, as the serial run" : "NO: differs from the serial run");
    good = good && same;
  }
  const double limit = options.max_residual > 0 ? options.max_residual : cholesky::residual_limit(options.n);
  const double residual = cholesky::residual(engine, parallel, vars);
  const bool small = residual <= limit;  // false for a NaN
  std::printf("  %-10s ||A - L L^T|| / ||A|| = %.2e, %s %.2e\n", "residual", residual,
              small ? "within" : "NOT within", limit);
  good = good && small;
  if (!options.trace.empty()) {
    std::printf("  %-10s %s (open it at https://ui.perfetto.dev)\n", "trace", options.trace.c_str());
  }
  return good;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  mx::examples::CommandLine line("Tiled Cholesky factorisation on the mxrun engine");
  line.option("--n", &options.n, "order of the matrix").within(1, 65536);
  line.option("--tile", &options.tile, "rows and columns of a tile").within(1, 4096);
  line.option("--threads", &options.threads, "worker threads; 0: all processors this process may use")
      .within(0, 4096);
  line.option("--trace", &options.trace, "write the schedule to FILE, for https://ui.perfetto.dev")
      .called("FILE");
  line.option("--max-residual", &options.max_residual, "fail above this residual; 0: what rounding explains")
      .at_least(0);
  line.flag("!--no-serial", options.serial, "skip the serial run and the comparison with it");
  if (const auto status = line.parse(argc, argv)) return *status;
  bool good = false;
  const int status = mx::examples::run_program("hello_engine", [&] { good = run(options); });
  return status != 0 || good ? status : 1;
}
