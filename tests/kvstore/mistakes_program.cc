// A program whose rank 1 makes one mistake: mistakes_program TYPE MISTAKE
//   shape    its key "b" has another shape
//   dtype    its key "b" has another type
//   order    it pushes "b" before "a"
//   name     its second key has another name
//   steps    it ends with exit code 0 after three rounds, and the others make five
//   batch    it leaves out the push of "b" in the last round, as for a last batch that it has not got
// A process that meets an error prints it and ends with 3.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

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

}  // namespace

int main(int, char** argv) {
  try {
    run(argv[1], argv[2]);
    return 0;
  } catch (const std::exception& error) {
    std::printf("error: %s\n", error.what());
    return 3;
  }
}
