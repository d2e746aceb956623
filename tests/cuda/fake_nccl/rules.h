// Lets every test of a program fail that has broken a rule of NCCL, or that leaves something of NCCL behind.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "tests/cuda/fake/fake_cuda.h"
#include "tests/cuda/fake_nccl/fake_nccl.h"

namespace mx::fake_nccl {

class Rules final : public ::testing::EmptyTestEventListener {
  void OnTestEnd(const ::testing::TestInfo&) override {
    // A callback may have held the last reference to a group, which then ends on a thread of its own.
    for (int i = 0; i < 5000 && live_communicators() > 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (const std::string& violation : take_violations()) ADD_FAILURE() << violation;
    EXPECT_EQ(live_communicators(), 0);
    EXPECT_EQ(waiting(), "");
  }
};

/// For a static variable: prepares the stand-ins for the program.
inline bool check_rules(int devices) {
  fake_cuda::set_options({.devices = devices});
  ::testing::UnitTest::GetInstance()->listeners().Append(new Rules);
  return true;
}

}  // namespace mx::fake_nccl
