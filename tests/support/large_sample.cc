#include "tests/support/large_sample.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "operators/samples/samples.h"
#include "operators/shape_ops.h"

namespace mx::test {
namespace {

/// Describes what grows: all dimensions of one size, or an attribute.
struct Growth {
  int64_t size = 0;
  std::string attribute{};
  bool of_stacks = false;  ///< the first dimension only, of arrays that are stacks of matrices
};

void multiply(AttrValue& value, int64_t times) {
  if (auto* number = std::get_if<int64_t>(&value)) *number *= times;
  if (auto* sizes = std::get_if<std::vector<int64_t>>(&value)) sizes->at(0) *= times;
}

void multiply_attribute(const Operator& op, Sample& sample, const std::string& name, int64_t times) {
  AttrMap attrs = sample.attrs.to_map();
  multiply(attrs.at(name), times);
  sample.attrs = Attrs::from_map(op.attrs, attrs, op.name());
}

bool has_attribute(const Sample& sample, const std::string& name) {
  return !sample.attrs.empty() && sample.attrs.to_map().contains(name);
}

Sample grown(const Operator& op, const Sample& sample, const Growth& growth, int64_t times) {
  Sample result = sample;
  if (!growth.attribute.empty()) {
    multiply_attribute(op, result, growth.attribute, times);
    return result;
  }
  for (NDArray& input : result.inputs) {
    Shape repeats = Shape::filled(input.rank(), 1);
    for (int i = 0; i < input.rank(); ++i)
      if (input.shape()[i] == growth.size && (!growth.of_stacks || (i == 0 && input.rank() > 2)))
        repeats[i] = times;
    input = tile(input, repeats).to_contiguous();
    input.wait();
  }
  // Scale the number of chosen elements by the same factor as the number of elements.
  if (op.sized_by_values && has_attribute(sample, "count"))
    multiply_attribute(op, result, "count", result.inputs[0].numel() / sample.inputs[0].numel());
  return result;
}

std::vector<Growth> growths_of(const Operator& op, const Sample& sample) {
  std::vector<Growth> list;
  for (const char* name : {"shape", "count"})
    if (!op.sized_by_values && has_attribute(sample, name)) list.push_back({.attribute = name});
  // Linear algebra: a stack of small matrices. Loops divide a stack, and the time of a large matrix would
  // grow with the cube of its size.
  if (std::string(op.family) == "linalg")
    for (const NDArray& input : sample.inputs)
      if (input.rank() > 2) list.push_back({.size = input.shape()[0], .of_stacks = true});
  std::vector<int64_t> sizes;
  for (const NDArray& input : sample.inputs)
    for (int64_t size : input.shape())
      if (size > 1 && std::find(sizes.begin(), sizes.end(), size) == sizes.end()) sizes.push_back(size);
  for (int64_t size : sizes) list.push_back({.size = size});
  return list;
}

std::vector<NDArray> results_of(const Operator& op, const Sample& sample) {
  std::vector<NDArray> results = call(op, sample.attrs, sample.inputs);
  for (const NDArray& result : results) result.wait();
  return results;
}

/// Returns the number of bytes that a call touches of each operand and of each result.
std::vector<double> touched(const Operator& op, const Sample& sample, const std::vector<NDArray>& results) {
  int64_t most = std::numeric_limits<int64_t>::max();
  if (op.work != nullptr) {
    std::vector<detail::ArrayImpl*> arrays;
    for (const NDArray& input : sample.inputs) arrays.push_back(&input.impl());
    InferContext infer(op, arrays, sample.attrs);
    op.infer(infer);
    most = op.work(infer);
  }
  const auto bytes = [](int64_t elements, DType dtype) {
    return static_cast<double>(elements) * static_cast<double>(size_of(dtype));
  };
  std::vector<double> list;
  for (const NDArray& input : sample.inputs)
    list.push_back(bytes(std::min(input.numel(), most), input.dtype()));
  for (const NDArray& result : results) list.push_back(bytes(result.numel(), result.dtype()));
  return list;
}

std::optional<Sample> enlarged(const Operator& op, const Sample& sample, double bytes) {
  for (const Growth& growth : growths_of(op, sample)) {
    try {
      const auto largest = [&](int64_t times) {
        const Sample larger = grown(op, sample, growth, times);
        const std::vector<double> list = touched(op, larger, results_of(op, larger));
        return list.empty() ? 0 : *std::max_element(list.begin(), list.end());
      };
      // Bytes grow with a power of `times`. Compare two sizes to find its exponent.
      const double once = largest(4), twice = largest(8);
      if (once <= 0 || twice <= once) continue;
      const double times = 4 * std::pow(bytes / once, 1 / std::log2(twice / once));
      return grown(op, sample, growth, std::max<int64_t>(1, static_cast<int64_t>(times)));
    } catch (const Error&) {
      // With this growth, another operand or an attribute no longer fits.
      try {
        wait_all();
      } catch (const Error&) {
      }
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<Sample> large_sample(const Operator& op, double bytes) {
  if (!has_samples(op)) return std::nullopt;
  std::vector<Sample> samples = samples_of(op);
  // Stacks of matrices first: see growths_of().
  if (std::string(op.family) == "linalg")
    std::stable_partition(samples.begin(), samples.end(), [](const Sample& sample) {
      return !sample.inputs.empty() && sample.inputs[0].rank() > 2;
    });
  for (const Sample& sample : samples)
    if (auto large = enlarged(op, sample, bytes)) return large;
  return std::nullopt;
}

double touched_bytes(const Operator& op, const Sample& sample, const std::vector<NDArray>& results) {
  double sum = 0;
  for (double bytes : touched(op, sample, results)) sum += bytes;
  return sum;
}

}  // namespace mx::test
