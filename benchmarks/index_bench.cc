// index_bench: assignments and reads at masks and indices in user code, and a one-file operator compared with
// a built-in one, over a million and four million float32. Nanoseconds per element, including the wait for
// each call.
//
//   mask_assign     x[mask] = 0, half of the mask set
//   mask_read       y = x[mask]
//   index_assign    x[indices] = 0, as many indices as elements, in random order with repetitions
//   index_read      y = x[indices]
//   index_copy      index_copy_(x, indices, u)
//   index_add       index_add_(x, indices, u)
//   histogram       index_add_(counts, bins, ones), 256 bins
//   rows_add        index_add_(x, rows, u) of rows of 3
//   scatter         scatter_(x, indices, u): the reference for index_copy
//   masked_fill     y = masked_fill(x, mask, 0): the reference for mask_assign
//   one_file        x / (1 + |x|) as a unary_operator
//   reciprocal      a built-in operator with the same work
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "benchmarks/op/runner.h"
#include "operators/elementwise_custom.h"
#include "operators/operators.h"

namespace {

using namespace mx::bench;
using mx::NDArray;

const char* const kOps[] = {"mask_assign", "mask_read",   "index_assign", "index_read",
                            "index_copy",  "index_add",   "histogram",    "rows_add",
                            "scatter",     "masked_fill", "one_file",     "reciprocal"};

constexpr struct {
  const char* name;
  int64_t elements;
} kSizes[] = {{"4Ki", 4 << 10}, {"1Mi", 1 << 20}, {"4Mi", 4 << 20}};

NDArray random_indices(int64_t n, int64_t size) {
  std::mt19937_64 random(7);
  std::vector<int64_t> list(static_cast<size_t>(n));
  for (int64_t& i : list) i = static_cast<int64_t>(random() % static_cast<uint64_t>(size));
  return mx::array(list);
}

const mx::Operator& softsign() {
  static const mx::Operator op =
      mx::unary_operator("bench_softsign", "x / (1 + |x|).", [](auto x) { return x / (1 + std::abs(x)); });
  return op;
}

OpCall prepare(const OpCase& c, int) {
  const int64_t n = c.elements;
  std::mt19937_64 random(1);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = static_cast<float>(random() % 2001) / 1000 - 1;
  NDArray x = mx::array(values);
  const NDArray u = mx::array(values), mask = u > 0.f, indices = random_indices(n, n);
  mask.wait();
  const auto in_place = [x](std::function<void(NDArray&)> f) {
    return [x, f]() mutable {
      f(x);
      x.wait();
    };
  };
  const auto made = [](std::function<NDArray()> f) { return [f] { f().wait(); }; };
  if (c.op == "mask_assign") return in_place([=](NDArray& a) { a[mask] = 0; });
  if (c.op == "mask_read") return made([=] { return NDArray(x[mask]); });
  if (c.op == "index_assign") return in_place([=](NDArray& a) { a[indices] = 0; });
  if (c.op == "index_read") return made([=] { return NDArray(x[indices]); });
  if (c.op == "index_copy") return in_place([=](NDArray& a) { mx::index_copy_(a, indices, u); });
  if (c.op == "index_add") return in_place([=](NDArray& a) { mx::index_add_(a, indices, u); });
  if (c.op == "scatter") return in_place([=](NDArray& a) { mx::scatter_(a, indices, u, 0); });
  if (c.op == "masked_fill") return made([=] { return mx::masked_fill(x, mask, 0); });
  if (c.op == "one_file") return made([=] { return mx::call(softsign(), {}, x); });
  if (c.op == "reciprocal") return made([=] { return mx::reciprocal(x); });
  const int64_t rows = n / 3;
  NDArray target = c.op == "histogram" ? mx::zeros({256}) : mx::zeros({rows, 3});
  const NDArray bins = c.op == "histogram" ? random_indices(n, 256) : random_indices(rows, rows);
  const NDArray added = c.op == "histogram" ? mx::ones({n}) : mx::ones({rows, 3});
  return [=]() mutable {
    mx::index_add_(target, bins, added);
    target.wait();
  };
}

}  // namespace

int main(int argc, char** argv) {
  OpSystem system{.bench = "index", .name = "mx", .cases = {}, .prepare = prepare};
  for (const char* op : kOps)
    for (const auto& [size, n] : kSizes)
      system.cases.push_back({std::string(op) + "/" + size, op, n, 0, static_cast<double>(n), "ns/op"});
  return run_op_bench(argc, argv, system);
}
