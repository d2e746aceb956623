// Every operator has a CUDA kernel, except those in a list, which is empty. A name in the list needs a
// reason.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "operators/operator.h"
#include "tests/cuda/executor/kernels_on_host.h"

namespace mx::test {
namespace {

const std::map<std::string, std::string>& without_kernel() {
  static const std::map<std::string, std::string> reasons = {};
  return reasons;
}

/// Operators whose kernel for GPUs is the CPU's, which calls copies that know both.
const std::set<std::string> kCopies = {"concat", "split", "pad", "tile", "repeat", "roll"};

TEST(CudaKernelList, OperatorsWithoutKernelAreListed) {
  const bool built = find_operator("softmax")->kernel.cuda != nullptr;
  std::set<std::string> without;
  for (const Operator* op : all_operators()) {
    if (op->compose != nullptr) continue;
    const std::string name = op->name();
    const bool has = kernels_on_host().count(name) != 0 || kCopies.count(name) != 0;
    if (built) {
      EXPECT_EQ(has, op->kernel.cuda != nullptr) << name << ": the record and the executor differ";
    }
    if (!has) without.insert(name);
  }
  for (const std::string& name : without)
    EXPECT_EQ(1u, without_kernel().count(name)) << name << " has no CUDA kernel and is not listed";
  for (const auto& [name, reason] : without_kernel())
    EXPECT_EQ(1u, without.count(name)) << name << " is listed, but it has a CUDA kernel or does not exist";
}

}  // namespace
}  // namespace mx::test
