// direct_bench: the cost of an element of each elementwise function, per type, in cache and on one thread.
//
// An operator runs in the calling thread if it takes no longer than about two microseconds
// (Kernel::direct_work). The table in operators/elementwise_cost.cc consists of these figures. A case is
// <function>/<type>, in nanoseconds per thousand elements, the minimum over many calls. --table prints the
// lines of the table instead: the maximum for f64 and that for the other types.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "benchmarks/support/clock.h"
#include "ndarray/tensor.h"
#include "operators/kernels/binary.h"
#include "operators/kernels/unary.h"

namespace {

using namespace mx;

constexpr int64_t kElements = 1024;
constexpr DType kTypes[] = {f32, f64, f16, i32, i64};

/// Values from -4 to 4 without 0. Signs are mixed, as in users' arrays.
struct Operand {
  std::vector<double> memory = std::vector<double>(kElements);
  Tensor tensor;
  Operand(DType type, int seed) : tensor{memory.data(), type, {kElements}, {1}} {
    for (int64_t i = 0; i < kElements; ++i) {
      const double value = static_cast<double>((i * 7919 + seed * 3571) % 8191 + 1) / 1024 - 4;
      visit(type, [&](auto tag) {
        using T = typename decltype(tag)::type;
        const double whole = value < 0 ? std::floor(value) : std::ceil(value);
        tensor.as<T>()[i] = static_cast<T>(static_cast<float>(is_floating(type) ? value : whole));
      });
    }
  }
};

template <class F>
double nanoseconds_per_thousand(const F& call) {
  double least = 1e18;
  for (int round = 0; round < 60; ++round) {
    const int64_t begin = bench::now_ns();
    for (int i = 0; i < 4; ++i) call();
    least = std::min(least, static_cast<double>(bench::now_ns() - begin) / 4);
  }
  return least * 1000 / kElements;
}

/// Prints each figure, or the lines of the table.
class Report {
 public:
  explicit Report(bool table) : table_(table) {}
  void function(const char* kind, const char* name) {
    finish();
    kind_ = kind;
    name_ = name;
  }
  void type(DType type, double ns) {
    double& most = type == f64 ? f64_ : others_;
    most = std::max(most, ns);
    if (!table_)
      std::printf("{\"bench\": \"direct\", \"case\": \"%s/%s\", \"value\": %.1f, \"unit\": \"ns/1000\"}\n",
                  name_, to_string(type), ns);
  }
  /// Cheaper functions need no line: see operators/elementwise_cost.cc.
  void finish() {
    if (table_ && std::max(f64_, others_) > 490)
      std::printf("    {%s::%s, %d, %d},\n", kind_, name_, rounded(others_), rounded(f64_));
    f64_ = others_ = 0;
  }

 private:
  static int rounded(double ns) { return static_cast<int>(std::ceil(ns / 50)) * 50; }

  bool table_;
  const char *kind_ = "", *name_ = "";
  double f64_ = 0, others_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  Report report(argc > 1 && std::strcmp(argv[1], "--table") == 0);
  for (int i = 0; i < kernels::kUnaryOps; ++i) {
    const auto op = static_cast<kernels::UnaryOp>(i);
    report.function("UnaryOp", to_string(op));
    for (const DType type : kTypes) {
      if (!kernels::unary_supports(op, type)) continue;
      const Operand x(type, 1), y(kernels::unary_result(op, type), 2);
      report.type(type, nanoseconds_per_thousand([&] { kernels::unary(op, y.tensor, x.tensor); }));
    }
  }
  for (int i = 0; i < kernels::kBinaryOps; ++i) {
    const auto op = static_cast<kernels::BinaryOp>(i);
    report.function("BinaryOp", to_string(op));
    for (const DType type : kTypes) {
      if (!kernels::binary_supports(op, type)) continue;
      const Operand a(type, 1), b(type, 2), y(kernels::binary_result(op, type), 3);
      report.type(type, nanoseconds_per_thousand([&] { kernels::binary(op, y.tensor, a.tensor, b.tensor); }));
    }
  }
  report.finish();
}
