// The number of allocations per graph node does not depend on the length of the graph. The test counts
// allocations instead of measuring time.
#include <gtest/gtest.h>

#include <vector>

#include "executor/autograd/autograd.h"
#include "operators/operators.h"
#include "tests/support/counted_allocations.h"

namespace mx {
namespace {

/// Returns the allocations per node of a chain: for recording, for the backward pass, and for the gradient of
/// a chosen array.
double per_node(int length) {
  const NDArray x = ones({2}).requires_grad_();
  const uint64_t before = allocations.load();
  {
    NDArray y = x;
    for (int i = 0; i < length; ++i) y = y + 1.0;
    const NDArray loss = sum(y);
    EXPECT_TRUE(gradients({loss}, {x}, {.retain_graph = true})[0].defined());
    loss.backward();
  }
  wait_all();
  EXPECT_EQ((std::vector<float>{1, 1}), x.grad().to_vector<float>());
  return static_cast<double>(allocations.load() - before) / length;
}

TEST(GraphAllocations, ANodeOfALongChainCostsAsMuchAsOneOfAShortChain) {
  per_node(1000);  // fills the caches
  const double brief = per_node(1000), lengthy = per_node(100'000);
  EXPECT_LE(lengthy, 8 * brief) << brief << " allocations per node of a short chain";
}

}  // namespace
}  // namespace mx
