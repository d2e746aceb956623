// The table of operators and types in docs/gpu-operators.md: what has a CUDA kernel, and in which types the
// tests compare it with the CPU.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cuda/executor/kernels_on_host.h"
#include "tests/operators/registry_support.h"

namespace mx::test {
namespace {

const char kHead[] =
    R"(# Operators on GPUs, by type

`cuda_executor_test` generates this page from the registry and fails if the page differs. To write it anew:
`MX_TABLE=docs/gpu-operators.md cuda_executor_test --gtest_filter='CudaKernelTable.*'`.

- *kernel*: the operator has a CUDA kernel, which nvcc compiles in every build. "copies" are operators that
  call copies only. "composed" operators call others.
- *executor and fake*: the types of the first input in which every sample of the operator is compared with the
  CPU's results, both on the executor (`cuda_executor_test`) and on the stand-in for CUDA
  (`operators_on_fake_test`). Operators without such an input are compared in the types of their samples.
- *GPU*: the types in which `operators_gpu_test` has passed on a GPU, with its name. The executor and the
  stand-in do not count.

[gpu-status.md](gpu-status.md) says how these comparisons are made and what they cannot show.

| operator | kernel | executor and fake | GPU |
|---|---|---|---|
)";

/// Operators whose kernel for GPUs calls copies, which know both kinds of devices.
const std::set<std::string> kCopies = {"concat", "split", "pad", "tile", "repeat", "roll"};

/// For each operator, the types in which operators_gpu_test has passed on a GPU, and the name of the GPU.
const std::map<std::string, std::string> kShownOnGpu = {};

std::string types_of(const Operator& op) {
  if (!has_samples(op)) return "no samples";
  std::set<DType> types;
  for (const Sample& sample : samples_of(op)) {
    if (op.sized_by_values || op.inputs.empty() || is_updated(op, 0)) {
      if (!sample.inputs.empty()) types.insert(sample.inputs[0].dtype());
    } else {
      for (const DType type : dtypes_of(op)) types.insert(type);
    }
  }
  std::string text;
  for (const DType type : kAllDTypes)
    if (types.count(type) != 0) text += (text.empty() ? "" : ", ") + std::string(to_string(type));
  return text.empty() ? "those of the samples" : text;
}

std::string table() {
  std::ostringstream out;
  out << kHead;
  for (const Operator* op : all_operators()) {
    const std::string name = op->name();
    const bool copies = kCopies.count(name) != 0, kernel = kernels_on_host().count(name) != 0;
    const bool composed = op->compose != nullptr;
    const auto shown = kShownOnGpu.find(name);
    out << "| `" << name << "` | "
        << (kernel     ? "yes"
            : copies   ? "copies"
            : composed ? "composed"
                       : "no")
        << " | " << (kernel || copies ? types_of(*op) : "-") << " | "
        << (shown != kShownOnGpu.end() ? shown->second
            : kernel || copies         ? "not yet"
                                       : "-")
        << " |\n";
  }
  return out.str();
}

TEST(CudaKernelTable, OfTheDocumentIsCurrent) {
  const std::string expected = table();
  if (const char* const path = std::getenv("MX_TABLE"); path != nullptr) {
    std::ofstream out(path, std::ios::binary);
    out << expected;
    ASSERT_TRUE(out.flush()) << "cannot write " << path;
  }
  std::ifstream in(MX_GPU_OPERATORS, std::ios::binary);
  const std::string got{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  EXPECT_TRUE(expected == got)
      << "docs/gpu-operators.md is not that of the registry; it says how to write it";
}

}  // namespace
}  // namespace mx::test
