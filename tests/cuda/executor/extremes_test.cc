// CUDA kernels on the executor with arrays that have no elements, or whose elements lie far apart: the
// results and the errors of the CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <set>
#include <string>
#include <vector>

#include "engine/device/registry.h"
#include "operators/operators.h"
#include "tests/cuda/executor/kernel_cases.h"

namespace mx::test {
namespace {

using CudaKernelExtremes = KernelTest;

struct Outcome {
  std::vector<NDArray> results;
  std::string error;
};

Outcome outcome_of(const Operator& op, const Sample& sample) {
  Outcome outcome;
  try {
    outcome.results = results_of(op, sample);
    for (const NDArray& x : outcome.results) x.wait();
  } catch (const std::exception& e) {
    return {{}, e.what()};
  }
  return outcome;
}

/// Leaves memory of the sizes of these arrays, full of a number, to the arrays that are made next: what a
/// kernel does not write is then seen.
void fill_free_memory(const std::vector<NDArray>& like) {
  std::vector<NDArray> filled;
  for (int k = 0; k < 4; ++k)
    for (const NDArray& x : like) {
      filled.push_back(full(x.shape(), x.dtype() == bool_ ? 1. : 77., x.dtype()));
      filled.back().wait();
    }
}

enum class Which { all, first, last };

/// The sample with each dimension of this size, or those among them that are the first or the last one of
/// their array, of size 0. Returns whether there is one.
bool empty_dimensions(Sample& sample, int64_t size, Which which) {
  bool changed = false;
  for (NDArray& input : sample.inputs) {
    if (!input.defined()) continue;
    Shape shape = input.shape();
    for (int d = 0; d < shape.rank(); ++d)
      if (shape[d] == size && (which == Which::all || d == (which == Which::first ? 0 : shape.rank() - 1)))
        shape[d] = 0;
    if (shape == input.shape()) continue;
    input = zeros(shape, input.dtype());
    changed = true;
  }
  return changed;
}

TEST_F(CudaKernelExtremes, ArraysWithoutElements) {
  int calls = 0;
  for (const Operator* op : all_operators()) {
    if (!has_kernel(*op) || !has_samples(*op)) continue;
    const Operator twin = on_host(*op);
    for (const Sample& sample : samples_of(*op)) {
      std::set<int64_t> sizes;
      for (const NDArray& input : sample.inputs)
        if (input.defined()) sizes.insert(input.shape().begin(), input.shape().end());
      for (const int64_t size : sizes)
        for (const Which which : {Which::all, Which::first, Which::last}) {
          Sample changed = sample;
          if (!empty_dimensions(changed, size, which)) continue;
          if (kThreadSanitizer && ++calls % 20 != 0) continue;
          SCOPED_TRACE(label(*op, changed));
          const Outcome expected = outcome_of(*op, changed);
          fill_free_memory(expected.results);
          const Outcome got = outcome_of(twin, changed);
          ASSERT_EQ(expected.error, got.error);
          for (size_t i = 0; i < expected.results.size(); ++i)
            expect_close(expected.results[i], got.results[i], f16);
          if (HasFailure()) return;
        }
    }
  }
}

/// The array in memory of which its elements take one in so many that they span more than 2^31 elements. The
/// kernel gives such memory pages only where it is written.
NDArray spread(const NDArray& x) {
  const int64_t step = ((int64_t{1} << 31) + 5000) / (x.numel() - 1) + 1;
  NDArray view =
      empty({(x.numel() - 1) * step + 1}, x.dtype()).slice(0, Slice{{}, {}, step}).reshape(x.shape());
  view.copy_from(x);
  return view;
}

bool may_spread(const NDArray& x) {
  constexpr int64_t kMostPages = 96;
  return x.defined() && x.numel() > 1 && x.numel() <= kMostPages;
}

TEST_F(CudaKernelExtremes, ElementsThatAreFurtherApartThan32BitsCount) {
  if (kSlow) GTEST_SKIP() << "the sanitizers' shadow of such memory takes too long";
  int operators = 0;
  for (const Operator* op : all_operators()) {
    if (!has_kernel(*op) || !has_samples(*op)) continue;
    const Operator twin = on_host(*op);
    int samples = 0;
    for (const Sample& given : samples_of(*op)) {
      if (samples == 2) break;
      const Sample sample = op->sized_by_values ? given : as_dtype(*op, given, dtypes_of(*op).front());
      const auto small = [](const NDArray& x) { return !x.defined() || x.numel() < 2 || may_spread(x); };
      if (!std::all_of(sample.inputs.begin(), sample.inputs.end(), small)) continue;
      ++samples;
      SCOPED_TRACE(label(*op, sample));
      const std::vector<NDArray> expected = results_of(*op, sample);
      for (size_t k = 0; k < sample.inputs.size(); ++k) {
        if (!may_spread(sample.inputs[k]) || is_updated(*op, k)) continue;
        SCOPED_TRACE("input " + std::to_string(k));
        Sample wide = sample;
        wide.inputs[k] = spread(sample.inputs[k]);
        const std::vector<NDArray> got = results_of(twin, wide);
        for (size_t i = 0; i < got.size(); ++i) expect_close(expected[i], got[i], sample.inputs[0].dtype());
        wide = {};
        get_device(cpu()).trim_memory();
      }
      if (expected.size() == 1 && op->updates == 0 && may_spread(expected[0])) {
        NDArray result = spread(zeros_like(expected[0]));
        call_into(result, twin, sample.attrs, sample.inputs);
        expect_close(expected[0], result, sample.inputs[0].dtype());
      }
      if (HasFailure()) return;
    }
    operators += samples > 0 ? 1 : 0;
  }
  EXPECT_GT(operators, 200);
}

}  // namespace
}  // namespace mx::test
