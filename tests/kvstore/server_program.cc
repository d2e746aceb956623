// A program for tests of whole jobs: "server_program dist_sync 5" adds up one array of each worker, five
// times. "dist_sync+dist_allreduce" makes a second store after the first one, which is used at the end. With
// "dist_sync 5 throws 1", worker 1 throws in the third round. Instead of "throws", "aborts" lets nobody catch
// the error, "ends" ends the process with exit code 0, "leaves" destroys its stores at the end and calls
// _exit(0), "spoils" lets the operation fail that computes a value, and "forks" forks a child that calls
// exit(0) before the worker goes on. In a process with the role of a server, create() does not return.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "engine/engine.h"
#include "kvstore/kvstore.h"
#include "ndarray/ndarray.h"
#include "tests/support/forking.h"

namespace {

std::shared_ptr<mx::KVStore> global_store, second_store;  // destroyed at exit, also in forked children

struct Failing {
  std::string how;
  int worker = -1;
};

/// Does what this worker is to do wrong. Returns the value that it pushes.
mx::NDArray value_of(int worker, const std::string& wrong) {
  mx::NDArray value = mx::full({300'000}, -(worker + 1.0));
  if (wrong == "ends") std::exit(0);
  if (wrong == "throws" || wrong == "aborts") throw mx::Error("the program of this worker fails");
  if (wrong == "spoils")
    mx::current_engine().push([] { throw mx::Error("the batch is spoilt"); },
                              {.updates = {value.var()}, .name = "spoil"});
  if (wrong == "forks") {
    const pid_t child = mx::test::fork_at_rest();
    if (child == 0) std::exit(0);
    int status = 1;
    if (child < 0 || ::waitpid(child, &status, 0) != child || status != 0)
      throw mx::Error("the child did not end well");
  }
  return value;
}

int run(const std::string& types, int rounds, const Failing& failing) {
  using namespace mx;
  const size_t plus = types.find('+');
  const std::string type = types.substr(0, plus);
  global_store = KVStore::create(type);
  if (plus != std::string::npos) second_store = KVStore::create(types.substr(plus + 1));
  KVStore* const kv = global_store.get();  // no second owner: exit() of a child destroys the store
  std::vector<NDArray> outs;
  for (int key = 0; key < 3; ++key) kv->init(key, zeros({300'000}));
  if (type == "dist_async") kv->set_optimizer("sgd", {{"lr", 1.0}});
  for (int round = 0; round < rounds; ++round) {
    const bool fails = round == 2 && kv->rank() == failing.worker;
    for (int key = 0; key < 3; ++key)
      kv->push(key, value_of(kv->rank(), fails && key == 1 ? failing.how : ""));
    for (int key = 0; key < 3; ++key) {
      outs.push_back(zeros({300'000}));
      kv->pull(key, outs.back());
    }
    for (NDArray& out : outs) out.wait();
    if (round == 0) std::printf("worker %d of %d has started\n", kv->rank(), kv->size());
    std::fflush(stdout);
    if (round + 1 < rounds) outs.clear();
  }
  if (second_store != nullptr) {
    NDArray one = ones({4}), sum = zeros({4});
    second_store->allreduce({"sum"}, {one}, {sum});
    if (sum.to_vector<float>()[3] != static_cast<float>(kv->size())) throw Error("the second sum differs");
  }
  kv->barrier();
  // The others have ended when it goes on.
  if (failing.how == "leaves" && kv->rank() == 0) usleep(1'200'000);
  NDArray last = zeros({300'000});
  kv->pull(2, last);
  const std::vector<float> values = last.to_vector<float>();
  for (const float value : values)
    if (value != values[0]) throw Error("elements differ");
  std::printf("worker %d ends with %g\n", kv->rank(), static_cast<double>(values[0]));
  if (failing.how == "leaves") {
    last = NDArray();
    outs.clear();
    wait_all();
    second_store.reset();
    global_store.reset();
    std::fflush(stdout);
    usleep(300'000);  // the farewell of the store is on its way; _exit() waits for nothing
    _exit(0);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string type = argc > 1 ? argv[1] : "dist_sync";
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 1;
  const Failing failing{argc > 3 ? argv[3] : "", argc > 4 ? std::atoi(argv[4]) : -1};
  if (failing.how == "aborts") return run(type, rounds, failing);
  try {
    return run(type, rounds, failing);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 3;
  }
}
