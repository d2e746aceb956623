// Hand-pushed operations on an array's variable keep their place in the order of the array's operations.
#include <gtest/gtest.h>

#include <vector>

#include "ndarray/ndarray.h"
#include "tests/support/held.h"

namespace mx {
namespace {

TEST(NDArrayVar, SmallOperationsWaitForThosePushedByHand) {
  NDArray x = zeros({4});
  float* const memory = x.mutable_data<float>();
  test::Hold hold;
  const Var var = x.var();
  current_engine().push_async(hold.operation(), {.updates = {var}, .name = "hold"});
  current_engine().push([memory] { memory[0] = 1; }, {.updates = {var}, .name = "by hand"});
  const NDArray copy = x.clone();
  x.fill_(2);
  current_engine().push([memory] { memory[1] = 3; }, {.updates = {var}, .name = "by hand"});
  const NDArray after = x.clone();
  EXPECT_FALSE(copy.wait(0)) << "what comes first is still held";
  hold.release();
  EXPECT_EQ((std::vector<float>{1, 0, 0, 0}), copy.to_vector<float>());
  EXPECT_EQ((std::vector<float>{2, 3, 2, 2}), after.to_vector<float>());
}

TEST(NDArrayVar, OutsideMemoryIsReleasedAfterOperationsPushedByHand) {
  std::vector<float> memory(4);
  bool released = false, released_before = true;
  test::Hold hold;
  {
    const NDArray x = from_external(memory.data(), f32, {4}, {1}, [&] { released = true; });
    const Var var = x.var();
    current_engine().push_async(hold.operation(), {.reads = {var}, .name = "hold"});
    current_engine().push([&] { released_before = released; }, {.reads = {var}, .name = "by hand"});
  }
  hold.release();
  wait_all();
  EXPECT_FALSE(released_before);
  EXPECT_TRUE(released);
}

}  // namespace
}  // namespace mx
