// Runs a program's tests of GPUs, on the stand-in for CUDA. Its other tests run elsewhere already.
#include <gtest/gtest.h>

int main(int argc, char** argv) {
  GTEST_FLAG_SET(filter, "gpu/*:Gpu/*:*Fake*");
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
