// A program whose rank 1 stays at a named step, so that a test can kill or stop it there:
//   steps_program KIND STEP FOLDER
// KIND is "comm", or the type of a store, or "by_priority": dist_allreduce with KVOrder::priority. The steps
// are those of run_calls() and run_store(). At its step, rank 1 writes FOLDER/at. It goes on when there is
// FOLDER/go. If the step is within a call, rank 1 is in the call, and it is rank 0 that waits for FOLDER/go
// before it makes the call, too. A process that meets an error prints it and ends with 3.
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "comm/world.h"
#include "engine/base/error.h"
#include "kvstore/kvstore.h"
#include "ndarray/ndarray.h"

namespace {

using namespace mx;

class Steps {
 public:
  Steps(std::string chosen, std::string folder) : chosen_(std::move(chosen)), folder_(std::move(folder)) {}

  /// The step lies between two calls.
  void at(const std::string& step) const {
    if (step != chosen_ || comm::place().rank != 1) return;
    write_at();
    wait_for_go();
  }

  /// The step lies within the call.
  template <class F>
  void within(const std::string& step, const F& call) const {
    if (step == chosen_ && comm::place().rank == 0) wait_for_go();
    std::thread reporter;
    if (step == chosen_ && comm::place().rank == 1)
      reporter = std::thread([this] {
        usleep(30'000);  // by then the main thread is in the call
        write_at();
      });
    try {
      call();
    } catch (...) {
      if (reporter.joinable()) reporter.join();
      throw;
    }
    if (reporter.joinable()) reporter.join();
  }

 private:
  void write_at() const { std::ofstream(folder_ + "/at") << getpid() << "\n"; }
  void wait_for_go() const {
    while (!std::filesystem::exists(folder_ + "/go")) usleep(1000);
  }

  const std::string chosen_, folder_;
};

void expect_sum(float sum, int ranks) {
  if (sum != static_cast<float>(ranks * (ranks + 1) / 2)) throw Error("the sum is wrong");
}

void run_calls(const Steps& steps) {
  using comm::Type;
  steps.at("start");
  const auto group = comm::world();
  const int ranks = group->size(), rank = group->rank();
  steps.at("joined");
  const auto one = static_cast<float>(rank + 1);
  float sum = 0;
  for (int round = 0; round < 3; ++round) {
    comm::report_step(round);
    group->allreduce(&one, &sum, 1, Type::f32);
    expect_sum(sum, ranks);
    steps.at("between");
  }
  steps.within("allreduce", [&] { group->allreduce(&one, &sum, 1, Type::f32); });
  constexpr size_t kMany = size_t{1} << 20;
  const std::vector<float> many(kMany, one);
  std::vector<float> sums(kMany), from_all(static_cast<size_t>(ranks) * kMany),
      to_all(static_cast<size_t>(ranks) * kMany);
  steps.within("large_allreduce", [&] { group->allreduce(many.data(), sums.data(), kMany, Type::f32); });
  expect_sum(sums[kMany - 1], ranks);
  steps.within("broadcast", [&] { group->broadcast(many.data(), sums.data(), kMany, Type::f32, 0); });
  steps.within("all_to_all", [&] { group->all_to_all(to_all.data(), from_all.data(), kMany, Type::f32); });
  steps.within("receive", [&] {
    if (rank == 0) group->send(many.data(), kMany, Type::f32, 1);
    if (rank == 1) group->receive(sums.data(), kMany, Type::f32, 0);
  });
  steps.within("barrier", [&] { group->barrier(); });
  steps.at("end");
}

void run_store(const std::string& type, const Steps& steps) {
  steps.at("start");
  const bool by_priority = type == "by_priority";
  const auto kv =
      by_priority ? KVStore::create("dist_allreduce", {.order = KVOrder::priority}) : KVStore::create(type);
  steps.at("created");
  const std::vector<std::string> keys{"a", "b"};
  for (const std::string& key : keys) kv->init(key, zeros({100'000}));
  const NDArray one = full({100'000}, kv->rank() + 1.0);
  const auto round = [&] {
    for (const std::string& key : keys) kv->push(key, one, {.priority = key == "b" ? 1 : 0});
  };
  const auto pull = [&] {
    NDArray out = zeros({100'000});
    for (const std::string& key : keys) kv->pull(key, out);
    expect_sum(out.to_vector<float>()[99'999], kv->size());
  };
  round();
  pull();
  steps.within("push", [&] {
    round();
    pull();
  });
  round();
  steps.at("pushed");
  pull();
  steps.within("barrier", [&] { kv->barrier(); });
  steps.at("end");
}

}  // namespace

int main(int, char** argv) {
  try {
    const std::string kind = argv[1];
    const Steps steps(argv[2], argv[3]);
    if (kind == "comm")
      run_calls(steps);
    else
      run_store(kind, steps);
    std::printf("has ended\n");
    return 0;
  } catch (const std::exception& error) {
    std::printf("error: %s\n", error.what());
    return 3;
  }
}
