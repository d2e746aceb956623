// A program whose rank 1 makes one mistake: mistakes_program TYPE MISTAKE
//   shape    its key "b" has another shape
//   dtype    its key "b" has another type
//   order    it pushes "b" before "a"
//   name     its second key has another name
//   steps    it ends with exit code 0 after three rounds, and the others make five
//   batch    it leaves out the push of "b" in the last round, as for a last batch that it has not got
//   memory   it has no memory for the sum of "b", and catches the error
//   first    the same at the first use of "b"
//   choice   it makes no call while the others, in the order of priorities, choose their next call, whose
//   first
//            value is not ready at that time
// A process that meets an error prints it and ends with 3.
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "kvstore/kvstore.h"
#include "ndarray/ndarray.h"

namespace {

using namespace mx;

void run(const std::string& type, const std::string& mistake) {
  const auto kv = KVStore::create(type);
  const bool wrong = kv->rank() == 1;
  const auto makes = [&](const char* which) { return wrong && mistake == which; };
  const Shape shape = makes("shape") ? Shape{30, 10} : Shape{10, 30};
  const DType dtype = makes("dtype") ? DType::f64 : DType::f32;
  std::vector<std::string> keys{"a", makes("name") ? "c" : "b"};
  if (makes("order")) std::swap(keys[0], keys[1]);
  for (const std::string& key : keys) kv->init(key, key == "a" ? zeros({5}) : zeros(shape, dtype));
  const int rounds = makes("steps") ? 3 : 5;
  for (int round = 0; round < rounds; ++round) {
    for (const std::string& key : keys) {
      if (makes("batch") && round == 4 && key == "b") continue;
      kv->push(key, key == "a" ? ones({5}) : ones(shape, dtype));
    }
    for (const std::string& key : keys) {
      NDArray out = key == "a" ? zeros({5}) : zeros(shape, dtype);
      kv->pull(key, out);
      out.wait();
    }
  }
  std::printf("has ended\n");
}

/// From now on this process gets 20 MB at most.
void limit_memory() {
  rlim_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t bytes = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (rlim_t{20} << 20);
  const rlimit limit{bytes, bytes};
  setrlimit(RLIMIT_AS, &limit);
}

void run_without_memory(const std::string& type, bool first_use) {
  const auto kv = KVStore::create(type);
  const NDArray value = ones({10'000'000});
  value.wait();
  if (!first_use) {
    const NDArray sum = zeros({10'000'000});
    kv->allreduce({"b"}, {value}, {sum});
    sum.wait();
  }
  kv->barrier();
  wait_all();
  // Afterwards nothing is left of what the first sum has used.
  std::vector<NDArray> in_use;
  for (int i = 0; i < 4; ++i) {
    in_use.push_back(zeros({10'000'000}));
    in_use.back().wait();
  }
  kv->barrier();
  if (kv->rank() == 1) limit_memory();
  const NDArray sum = empty({10'000'000});
  try {
    kv->allreduce({"b"}, {value}, {sum});
    sum.wait();
  } catch (const std::exception& error) {
    if (kv->rank() != 1) throw;
    std::printf("error: %s\n", error.what());
    std::fflush(stdout);
    pause();  // until the others have ended: its end would be another reason for them to fail
  }
}

void run_by_priority(const std::string& type) {
  const auto kv = KVStore::create(type, {.order = KVOrder::priority});
  const NDArray a = zeros({5}), b = zeros({5}), value = ones({5});
  kv->allreduce({"a"}, {value}, {a});
  kv->allreduce({"b"}, {value}, {b});
  a.wait(), b.wait();
  kv->barrier();
  if (kv->rank() == 1) pause();
  current_engine().push([] { std::this_thread::sleep_for(std::chrono::milliseconds(200)); },
                        {.updates = {value.var()}, .name = "slow"});
  kv->allreduce({"a"}, {value}, {a});
  kv->allreduce({"b"}, {ones({5})}, {b}, {.priority = 5});
  a.wait();
}

}  // namespace

int main(int, char** argv) {
  const std::string mistake = argv[2];
  try {
    if (mistake == "memory" || mistake == "first") {
      run_without_memory(argv[1], mistake == "first");
    } else if (mistake == "choice") {
      run_by_priority(argv[1]);
    } else {
      run(argv[1], mistake);
    }
    return 0;
  } catch (const std::exception& error) {
    std::printf("error: %s\n", error.what());
    return 3;
  }
}
