// The introductory example: b and c depend only on a, so they run at the same time, and only the print waits.
// Then the same program runs on arrays that are large enough to show the overlap in a trace.
#include <mx/mx.h>

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <string>

#include "examples/support/command_line.h"
#include "examples/support/writable.h"

int main(int argc, char** argv) {
  int64_t size = 4000;
  int64_t rounds = 4;
  std::string trace;
  mx::examples::CommandLine line("Arrays that are computed when they are needed");
  line.option("--size", &size, "rows and columns of the large arrays").within(1, 100000);
  line.option("--rounds", &rounds, "how often the large program runs").within(1, 1000);
  line.option("--trace", &trace, "write the schedule to FILE, for https://ui.perfetto.dev").called("FILE");
  if (const auto status = line.parse(argc, argv)) return *status;
  return mx::examples::run_program("hello_ndarray", [&] {
    using namespace mx;
    // A trace that is written to a pipe or a device makes no new file.
    if (!trace.empty() && !std::filesystem::is_other(trace)) examples::require_writable(trace);
    {
      NDArray a = ones({2, 2}) * 2;
      NDArray c = a + 2, b = a + 1;
      NDArray d = b * c;
      std::cout << d << '\n';
    }
    Engine& engine = Engine::get();
    if (!trace.empty()) engine.profiler_start();
    for (int64_t round = 0; round < rounds; ++round) {
      NDArray a = ones({size, size}) * 2;
      NDArray c = a + 2, b = a + 1;
      NDArray d = b * c;
      d.wait();
      const float last = d[{-1, -1}].item<float>();
      if (last != 12) throw InvalidState("expected 12, got " + std::to_string(last));
    }
    std::printf("%lld x %lld: 12 as well\n", static_cast<long long>(size), static_cast<long long>(size));
    if (!trace.empty()) {
      engine.profiler_stop();
      engine.write_trace(trace);
      std::printf("trace: %s (open it at https://ui.perfetto.dev)\n", trace.c_str());
    }
  });
}
