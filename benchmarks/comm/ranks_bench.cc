// ranks_bench: what ranks cost while they wait, and how soon they learn that another one was killed. Its
// ranks are started by mxrun:
//
//   mxrun -n 4 ranks_bench wait SECONDS     rank 0 sleeps before it joins a sum, the others wait for it. Rank
//   1
//                                           prints a JSON line with bench "ranks" and case "waiting_cpu": the
//                                           processor time that it used after its first second of waiting,
//                                           as a part of that time ("x"; 1 is one processor).
//   mxrun -n 4 ranks_bench store SECONDS    the same through a KVStore ("waiting_cpu_store"), so with the
//                                           threads of the engine
//   mxrun -n 4 ranks_bench loop FOLDER      sums until an error. Each rank writes its process number to
//                                           FOLDER/ready<rank> after ten of them; if a sum fails, it writes
//                                           the time of CLOCK_MONOTONIC and the error to FOLDER/lost<rank>
//                                           and exits with 1. Who kills a rank can so tell how long it took.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "benchmarks/support/clock.h"
#include "benchmarks/support/process.h"
#include "benchmarks/support/report.h"
#include "comm/world.h"
#include "kvstore/kvstore.h"
#include "operators/operators.h"

namespace {

using namespace mx;

void sleep_s(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

/// Calls `join`, which waits for rank 0 for `seconds`, and prints what this process used after the first one.
template <class Join>
void wait_for_rank_zero(const std::string& name, double seconds, Join&& join) {
  const auto group = comm::world();
  if (group->rank() == 0) {
    sleep_s(seconds);
    join();
    return;
  }
  double cpu = 0;
  int64_t from = 0, to = 0;
  // Ends before rank 0 joins, so that the sum itself is not counted.
  std::thread observer([&] {
    sleep_s(1);
    from = bench::now_ns();
    const double before = bench::process_cpu_s();
    sleep_s(seconds - 1.5);
    cpu = bench::process_cpu_s() - before;
    to = bench::now_ns();
  });
  join();
  observer.join();
  if (group->rank() == 1)
    bench::print({.bench = "ranks",
                  .case_name = name,
                  .system = "mx_" + group->type(),
                  .threads = group->size(),
                  .unit = "x",
                  .value = bench::summarize({cpu / (static_cast<double>(to - from) * 1e-9)})});
}

void wait_in_sum(double seconds) {
  const auto group = comm::world();
  group->barrier();
  wait_for_rank_zero("waiting_cpu", seconds, [&] {
    float value = 1;
    group->allreduce(&value, &value, 1, comm::Type::f32);
  });
}

void wait_in_store(double seconds) {
  const auto store = KVStore::create("dist_allreduce");
  NDArray value = ones({1000});
  store->init("value", value);
  store->barrier();
  wait_for_rank_zero("waiting_cpu_store", seconds, [&] {
    store->pushpull("value", value, value);
    value.wait();
  });
}

/// The file appears with its content.
void write_file(const std::string& path, const std::string& text) {
  std::ofstream(path + ".new") << text << '\n';
  std::filesystem::rename(path + ".new", path);
}

int sum_until_an_error(const std::string& folder) {
  const auto group = comm::world();
  const std::string rank = std::to_string(group->rank());
  try {
    for (int round = 0;; ++round) {
      float value = 1;
      group->allreduce(&value, &value, 1, comm::Type::f32);
      if (round == 10) write_file(folder + "/ready" + rank, std::to_string(getpid()));
      sleep_s(1e-3);
    }
  } catch (const std::exception& error) {
    const std::string at = std::to_string(static_cast<double>(bench::now_ns()) * 1e-9);
    write_file(folder + "/lost" + rank, at + " " + error.what());
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc == 3 ? argv[1] : "", value = argc == 3 ? argv[2] : "";
  try {
    if (mode == "loop") return sum_until_an_error(value);
    const double seconds = std::max(2.0, std::atof(value.c_str()));
    if (mode == "wait") {
      wait_in_sum(seconds);
      return 0;
    }
    if (mode == "store") {
      wait_in_store(seconds);
      return 0;
    }
  } catch (const std::exception& error) {
    bench::note(error.what());
    return 1;
  }
  bench::note("usage: mxrun -n RANKS ranks_bench wait SECONDS | store SECONDS | loop FOLDER");
  return 2;
}
