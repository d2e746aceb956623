// registry_bench: every operator of the registry at three sizes. Its operands are made from the first sample
// of its record that can grow, so that a new operator is measured without a change here.
//
// A case is <operator>/<size>; <size> is that of the largest operand or result. GB/s count operands and
// results once; of a table they count only the part that is taken (tests/support/large_sample.h). A call is a
// user's call with new results, and is waited for. Operators without a sample that can grow are named on
// stderr: random_key makes two numbers, whatever its attributes.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/op/runner.h"
#include "operators/operators.h"
#include "operators/samples/samples.h"
#include "tests/support/large_sample.h"

namespace {

using namespace mx::bench;
using mx::NDArray;
using mx::Operator;
using mx::Sample;

constexpr struct {
  const char* name;
  double bytes;
} kSizes[] = {{"16KiB", 1 << 14}, {"256KiB", 1 << 18}, {"64MiB", 1 << 26}};

std::vector<NDArray> run(const Operator& op, const Sample& sample) {
  std::vector<NDArray> results = mx::call(op, sample.attrs, sample.inputs);
  for (const NDArray& result : results) result.wait();
  return results;
}

std::map<std::string, double> work_of;  // by the name of the case, after it has been prepared

OpCall prepare(const OpCase& c, int) {
  const Operator* op = mx::find_operator(c.op);
  const std::optional<Sample> large = mx::test::large_sample(*op, c.work);
  if (!large) return {};
  work_of[c.name] = mx::test::touched_bytes(*op, *large, run(*op, *large));
  return [op, sample = *large] { run(*op, sample); };
}

}  // namespace

int main(int argc, char** argv) {
  OpSystem system{.bench = "registry", .name = "mx", .cases = {}, .prepare = prepare};
  for (const Operator* op : mx::all_operators()) {
    if (!has_samples(*op)) continue;
    for (const auto& size : kSizes)
      system.cases.push_back({std::string(op->name()) + "/" + size.name, op->name(),
                              static_cast<int64_t>(size.bytes / 4), 0, size.bytes});
  }
  system.work = [](const OpCase& c) { return work_of.at(c.name); };
  return run_op_bench(argc, argv, system);
}
