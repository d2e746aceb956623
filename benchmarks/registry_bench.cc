// registry_bench: every operator of the registry at three sizes, its operands made from the first sample of
// its record that can grow, so that a new operator is measured without a line here.
//
// A case is <operator>/<size>; <size> is that of the largest operand or result. GB/s count operands and
// results, once. A call is what a user's call is, with new results, and is waited for. Operators of which no
// sample can grow (their sizes are attributes) are named on stderr.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "benchmarks/op/runner.h"
#include "benchmarks/support/report.h"
#include "operators/operators.h"
#include "operators/shape_ops.h"

namespace {

using namespace mx::bench;
using mx::NDArray;
using mx::Operator;
using mx::Sample;
using mx::Shape;

constexpr struct {
  const char* name;
  double bytes;
} kSizes[] = {{"16KiB", 1 << 14}, {"256KiB", 1 << 18}, {"64MiB", 1 << 26}};

double bytes_of(const NDArray& array) {
  return static_cast<double>(array.numel()) * static_cast<double>(mx::size_of(array.dtype()));
}

double bytes_of(const std::vector<NDArray>& arrays) {
  double sum = 0;
  for (const NDArray& array : arrays) sum += bytes_of(array);
  return sum;
}

double largest_of(const std::vector<NDArray>& arrays) {
  double most = 0;
  for (const NDArray& array : arrays) most = std::max(most, bytes_of(array));
  return most;
}

std::vector<NDArray> run(const Operator& op, const Sample& sample) {
  std::vector<NDArray> results = mx::call(op, sample.attrs, sample.inputs);
  for (const NDArray& result : results) result.wait();
  return results;
}

/// The sample with every dimension of `size` so many times as large; an attribute "shape" grows in its first.
Sample grown(const Operator& op, const Sample& sample, int64_t size, int64_t times) {
  Sample result = sample;
  if (size == 0) {
    mx::AttrMap attrs = sample.attrs.to_map();
    std::get<std::vector<int64_t>>(attrs.at("shape")).at(0) *= times;
    result.attrs = mx::Attrs::from_map(op.attrs, attrs, op.name());
    return result;
  }
  for (NDArray& input : result.inputs) {
    Shape repeats = Shape::filled(input.rank(), 1);
    for (int i = 0; i < input.rank(); ++i)
      if (input.shape()[i] == size) repeats[i] = times;
    input = mx::tile(input, repeats).to_contiguous();
    input.wait();
  }
  return result;
}

bool has_shape(const Sample& sample) {
  if (sample.attrs.empty()) return false;
  const mx::AttrMap attrs = sample.attrs.to_map();
  const auto found = attrs.find("shape");
  if (found == attrs.end()) return false;
  const auto* sizes = std::get_if<std::vector<int64_t>>(&found->second);
  return sizes != nullptr && !sizes->empty() && sizes->front() > 0;
}

/// The sample so large that the largest operand or result takes about `bytes`, if it can grow.
std::optional<Sample> enlarged(const Operator& op, const Sample& sample, double bytes) {
  std::vector<int64_t> sizes;
  if (has_shape(sample)) sizes.push_back(0);
  for (const NDArray& input : sample.inputs)
    for (int64_t size : input.shape())
      if (size > 1 && std::find(sizes.begin(), sizes.end(), size) == sizes.end()) sizes.push_back(size);
  for (const int64_t size : sizes) {
    try {
      const auto largest = [&](int64_t times) {
        const Sample larger = grown(op, sample, size, times);
        return std::max(largest_of(larger.inputs), largest_of(run(op, larger)));
      };
      // What doubling does tells the power with which it grows.
      const double once = largest(4), twice = largest(8);
      if (once <= 0 || twice <= once) continue;
      const double power = std::log2(twice / once);
      return grown(op, sample, size,
                   std::max<int64_t>(1, static_cast<int64_t>(4 * std::pow(bytes / once, 1 / power))));
    } catch (const mx::Error&) {
      // Another operand or an attribute does not fit then.
      try {
        mx::wait_all();
      } catch (const mx::Error&) {
      }
    }
  }
  return std::nullopt;
}

std::map<std::string, double> work_of;  // by the name of the case, once it is prepared

OpCall prepare(const OpCase& c, int) {
  const Operator* op = mx::find_operator(c.op);
  for (const Sample& sample : op->samples()) {
    const std::optional<Sample> large = enlarged(*op, sample, c.work);
    if (!large) continue;
    work_of[c.name] = bytes_of(large->inputs) + bytes_of(run(*op, *large));
    return [op, sample = *large] { run(*op, sample); };
  }
  note(c.name + ": left out, no sample of it can grow");
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  OpSystem system{.bench = "registry", .name = "mx", .cases = {}, .prepare = prepare};
  for (const Operator* op : mx::all_operators()) {
    if (op->samples == nullptr) continue;
    for (const auto& size : kSizes)
      system.cases.push_back({std::string(op->name()) + "/" + size.name, op->name(),
                              static_cast<int64_t>(size.bytes / 4), 0, size.bytes});
  }
  system.work = [](const OpCase& c) { return work_of.at(c.name); };
  return run_op_bench(argc, argv, system);
}
