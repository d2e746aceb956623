// A program for tests of whole jobs: "server_program dist_sync 5" adds up one array of each worker, five
// times. In a process with the role of a server, create() does not return.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "kvstore/kvstore.h"
#include "ndarray/ndarray.h"

namespace {

int run(const std::string& type, int rounds) {
  using namespace mx;
  const std::shared_ptr<KVStore> kv = KVStore::create(type);
  std::vector<NDArray> outs;
  for (int key = 0; key < 3; ++key) kv->init(key, zeros({300'000}));
  if (type == "dist_async") kv->set_optimizer("sgd", {{"lr", 1.0}});
  for (int round = 0; round < rounds; ++round) {
    for (int key = 0; key < 3; ++key) kv->push(key, full({300'000}, -(kv->rank() + 1.0)));
    for (int key = 0; key < 3; ++key) {
      outs.push_back(zeros({300'000}));
      kv->pull(key, outs.back());
    }
    for (NDArray& out : outs) out.wait();
    if (round == 0) std::printf("worker %d of %d has started\n", kv->rank(), kv->size());
    std::fflush(stdout);
    if (round + 1 < rounds) outs.clear();
  }
  kv->barrier();
  NDArray last = zeros({300'000});
  kv->pull(2, last);
  const std::vector<float> values = last.to_vector<float>();
  for (const float value : values)
    if (value != values[0]) throw Error("elements differ");
  std::printf("worker %d ends with %g\n", kv->rank(), static_cast<double>(values[0]));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : "dist_sync", argc > 2 ? std::atoi(argv[2]) : 1);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 3;
  }
}
