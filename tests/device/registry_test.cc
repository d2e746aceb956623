// Contexts, and the registry that finds devices for them.
#include "engine/device/registry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <latch>
#include <sstream>
#include <thread>
#include <vector>

#include "engine/base/error.h"
#include "engine/device/host_memory.h"

namespace mx {

TEST(Context, PrintsItsName) {
  std::ostringstream out;
  out << cpu() << ' ' << gpu(1) << ' ' << virt(2) << ' ' << Context{static_cast<DeviceKind>(4), 5};
  EXPECT_EQ(out.str(), "cpu(0) gpu(1) virt(2) kind4(5)");
}

TEST(Context, NumbersThatNoDeviceHasAreRefused) {
  for (const int id : {-1, 65536, INT_MAX, INT_MIN}) {
    EXPECT_THROW(cpu(id), InvalidArgument) << id;
    EXPECT_THROW(gpu(id), InvalidArgument) << id;
    EXPECT_THROW(virt(id), InvalidArgument) << id;
  }
  EXPECT_EQ(65535, virt(65535).id);
}

TEST(Registry, StartsADeviceOnceForAllThreads) {
  constexpr int kThreads = 8;
  std::latch start(kThreads);
  std::vector<Device*> found(kThreads);
  std::vector<std::thread> threads;
  for (auto& device : found) {
    threads.emplace_back([&] {
      start.arrive_and_wait();
      device = &get_device(virt(5));
    });
  }
  for (auto& thread : threads) thread.join();
  for (const Device* device : found) EXPECT_EQ(device, found[0]);
}

TEST(Registry, ADeviceThatIsNotThereIsNamedWithHowManyThereAre) {
  try {
    get_device(virt(1000));
    FAIL() << "expected InvalidArgument";
  } catch (const InvalidArgument& e) {
    EXPECT_NE(std::string(e.what()).find("virt(1000)"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find(std::to_string(num_devices(DeviceKind::virt))), std::string::npos);
  }
  EXPECT_THROW(get_device(cpu(1)), InvalidArgument);
  if (num_gpus() == 0) {
    try {
      get_device(gpu(0));
      FAIL() << "expected InvalidArgument";
    } catch (const InvalidArgument& e) {
      const std::string text = e.what();
      EXPECT_NE(text.find("no device of kind gpu"), std::string::npos) << text;
      EXPECT_NE(text.find("present: cpu(0), virt(0) to virt("), std::string::npos) << text;
    }
  }
  EXPECT_THROW(get_device(gpu(num_gpus())), InvalidArgument);
  EXPECT_THROW(get_device({static_cast<DeviceKind>(9), 0}), InvalidArgument);
  EXPECT_THROW(get_device({static_cast<DeviceKind>(60000), 0}), InvalidArgument);
  EXPECT_EQ(num_devices(static_cast<DeviceKind>(60000)), 0);
}

TEST(Registry, TheHostDescribesItself) {
  const DeviceProperties& host = get_device(cpu()).properties();
  EXPECT_FALSE(host.name.empty());
  EXPECT_GE(host.compute_units, 1);
  EXPECT_GT(host.total_bytes, size_t{1} << 20);
  EXPECT_TRUE(host.host_accessible);
  EXPECT_FALSE(get_device(virt()).properties().host_accessible);
}

TEST(HostMemory, ComesFromThePinnedHookWhileThatHasSome) {
  static int taken, returned;
  taken = returned = 0;
  set_pinned_host_memory(
      {[](size_t bytes) { return ++taken > 1 ? nullptr : std::aligned_alloc(4096, bytes); },
       [](void* memory) { ++returned, std::free(memory); }});
  HostMemory memory;
  void* pinned = memory.reserve(1 << 20);
  void* pageable = memory.reserve(1 << 20);
  set_pinned_host_memory({});
  ASSERT_NE(pinned, nullptr);
  ASSERT_NE(pageable, nullptr);
  EXPECT_EQ(taken, 2);
  memory.release(pageable, 1 << 20);
  EXPECT_EQ(returned, 0);
  memory.release(pinned, 1 << 20);
  EXPECT_EQ(returned, 1);
}

TEST(HostMemory, OlderSegmentsAreLockedAndUnlocked) {
  static std::vector<void*> locked, unlocked;
  locked.clear(), unlocked.clear();
  HostMemory memory;
  const size_t large_bytes = HostMemory::kLongestLocked + 4096;
  void* const small = memory.reserve(1 << 20);
  void* const large = memory.reserve(large_bytes);
  void* const refused = memory.reserve(2 << 20);
  lock_host_memory();  // there is no driver
  set_pinned_host_memory({[](size_t) -> void* { return nullptr; }, [](void*) {},
                          [](void* segment, size_t bytes) {
                            if (bytes != 1 << 20) return false;
                            locked.push_back(segment);
                            return true;
                          },
                          [](void* segment) { unlocked.push_back(segment); }});
  lock_host_memory();
  lock_host_memory();  // locks nothing twice
  set_pinned_host_memory({});
  EXPECT_EQ(std::count(locked.begin(), locked.end(), small), 1);
  EXPECT_EQ(std::count(locked.begin(), locked.end(), large), 0);
  EXPECT_TRUE(memory.release_may_wait());
  memory.release(small, 1 << 20);
  memory.release(large, large_bytes);
  memory.release(refused, 2 << 20);
  EXPECT_EQ(unlocked, std::vector<void*>{small});
}

TEST(HostMemory, EndsAtTheMachinesMemory) {
  HostMemory memory;
  EXPECT_EQ(memory.reserve(memory.limit_bytes() + 1), nullptr);
}

}  // namespace mx
