#include "operators/kernels/workspace.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <thread>

namespace mx::kernels {
namespace {

constexpr size_t kLarge = size_t{1} << 20;

bool usable(void* data, size_t bytes) {
  if (data == nullptr || reinterpret_cast<uintptr_t>(data) % 64 != 0) return false;
  std::memset(data, 7, bytes);
  return static_cast<const char*>(data)[bytes - 1] == 7;
}

TEST(Workspace, StaysUntilMoreIsNeeded) {
  void* const first = thread_workspace(kLarge);
  EXPECT_TRUE(usable(first, kLarge));
  EXPECT_EQ(thread_workspace(100), first);
  EXPECT_TRUE(usable(thread_workspace(4 * kLarge), 4 * kLarge));
}

TEST(Workspace, EachThreadHasItsOwn) {
  void* const here = thread_workspace(kLarge);
  void* there = nullptr;
  std::thread([&] { there = thread_workspace(kLarge); }).join();
  EXPECT_NE(here, there);
}

// Uses the workspace when the thread ends. The object is constructed before the first use of the workspace,
// so it is destroyed after the thread's workspace.
struct Late {
  bool* worked = nullptr;
  ~Late() {
    if (worked != nullptr)
      *worked = usable(thread_workspace(kLarge / 2), kLarge / 2) &&
                usable(thread_workspace(2 * kLarge), 2 * kLarge) && usable(thread_workspace(kLarge), kLarge);
  }
};

TEST(Workspace, WorksAfterTheDestructorsOfTheThread) {
  bool worked = false;
  std::thread([&] {
    static thread_local Late late;
    late.worked = &worked;
    thread_workspace(kLarge);
  }).join();
  EXPECT_TRUE(worked);
}

}  // namespace
}  // namespace mx::kernels
