// Every operator of the registry has a CUDA kernel.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "operators/operator.h"
#include "tests/cuda/executor/kernels_on_host.h"

namespace mx::test {
namespace {

/// Operators whose kernel for GPUs is the CPU's, which calls copies that know both.
const std::set<std::string> kCopies = {"concat", "split", "pad", "tile", "repeat", "roll"};

TEST(CudaKernelList, EveryOperatorHasAKernel) {
  const bool built = find_operator("softmax")->kernel.cuda != nullptr;
  for (const Operator* op : all_operators()) {
    if (op->compose != nullptr) continue;
    const std::string name = op->name();
    const bool has = kernels_on_host().count(name) != 0 || kCopies.count(name) != 0;
    EXPECT_TRUE(has) << name << " has no CUDA kernel";
    if (built) EXPECT_EQ(has, op->kernel.cuda != nullptr) << name << ": the record and the executor differ";
  }
}

}  // namespace
}  // namespace mx::test
