// Features that only a simulated accelerator has: memory that faults and is poisoned, repeatable delays, and
// failures on demand.
#include "engine/device/virtual/virtual_device.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <future>

#include "engine/base/error.h"
#include "tests/conformance/device_suite.h"
#include "tests/support/forking.h"

namespace mx {

using conformance::host_ops;
using conformance::text_of;

// Each test uses its own device and leaves it working.
class VirtualDeviceTest : public ::testing::Test {
 protected:
  VirtualDevice& device = virtual_device(0);
  std::unique_ptr<Stream> stream = device.new_stream(StreamKind::compute);

  void TearDown() override {
    stream.reset();
    device.restore();
    device.set_delay(0, 0, 0);
    device.set_capacity(virtual_options().capacity_bytes);
    device.fail_next_allocation(0);
    device.fail_next_copy(0);
    device.fail_next_kernel(0);
  }

  bool poisoned(const void* p, size_t bytes) const {
    const auto* q = static_cast<const unsigned char*>(device.alias(p));
    return std::all_of(q, q + bytes, [](unsigned char byte) { return byte == kVirtualPoison; });
  }
};

// Returns the signal that ends a child process that calls `body`, or 0.
template <class F>
int signal_of_child(F body) {
  const pid_t child = test::fork_at_rest();
  if (child == 0) {
    std::signal(SIGSEGV, SIG_DFL);  // no report of a sanitizer
    std::signal(SIGBUS, SIG_DFL);
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

TEST_F(VirtualDeviceTest, TheHostFaultsOnDeviceMemory) {
  auto* p = static_cast<volatile char*>(device.allocate(64, nullptr));
  EXPECT_EQ(signal_of_child([&] { (void)p[0]; }), SIGSEGV);
  EXPECT_EQ(signal_of_child([&] { p[63] = 1; }), SIGSEGV);
  EXPECT_EQ(
      signal_of_child([&] { (void)*static_cast<const volatile char*>(device.alias(const_cast<char*>(p))); }),
      0);
  device.free(const_cast<char*>(p), nullptr);
}

TEST_F(VirtualDeviceTest, FreshMemoryIsPoisoned) {
  device.trim_memory();
  for (const size_t bytes : {1, 1000, 300'000, 10'000'000}) {
    void* p = device.allocate(bytes, nullptr);
    EXPECT_TRUE(poisoned(p, bytes)) << bytes;
    device.free(p, nullptr);
  }
}

TEST_F(VirtualDeviceTest, FreedMemoryIsPoisonedWhenItsUseEndsAndNotBefore) {
  constexpr size_t kN = 1000;
  auto* p = static_cast<uint32_t*>(device.allocate(kN * 4, stream.get()));
  host_ops().fill(*stream, p, kN, 7);
  auto gate = host_ops().hold(*stream);
  std::promise<bool> intact;
  stream->submit([&](KernelContext& context) {
    intact.set_value(std::all_of(context.ptr(p), context.ptr(p) + kN, [](uint32_t x) { return x == 7; }));
  });
  device.free(p, stream.get());
  gate->open();
  EXPECT_TRUE(intact.get_future().get());
  stream->synchronize();
  EXPECT_TRUE(poisoned(p, kN * 4));
}

TEST_F(VirtualDeviceTest, MemoryOfSeveralStreamsIsPoisonedAfterTheLast) {
  auto other = device.new_stream(StreamKind::compute);
  auto* p = static_cast<uint32_t*>(device.allocate(64, stream.get()));
  host_ops().fill(*stream, p, 16, 7);
  stream->synchronize();
  auto gate = host_ops().hold(*other);
  device.note_use(p, *other);
  device.free(p, stream.get());
  stream->synchronize();
  EXPECT_EQ(*static_cast<const uint32_t*>(device.alias(p)), 7u);
  gate->open();
  other->synchronize();
  EXPECT_TRUE(poisoned(p, 64));
}

TEST_F(VirtualDeviceTest, FreeWithoutAStreamPoisonsAtOnce) {
  auto* p = static_cast<uint32_t*>(device.allocate(64, nullptr));
  host_ops().fill(*stream, p, 16, 7);
  stream->synchronize();
  device.free(p, nullptr);
  EXPECT_TRUE(poisoned(p, 64));
}

TEST_F(VirtualDeviceTest, DelaysRepeatForASeed) {
  const auto delays = [&](uint64_t seed) {
    device.set_delay(seed, 1, 40);
    device.start_trace();
    for (int i = 0; i < 30; ++i) stream->submit([](KernelContext&) {});
    stream->synchronize();
    std::vector<uint32_t> result;
    for (const VirtualTraceEntry& entry : device.stop_trace()) result.push_back(entry.delay_us);
    return result;
  };
  const std::vector<uint32_t> first = delays(1);
  EXPECT_EQ(first.size(), 30u);
  EXPECT_GE(*std::min_element(first.begin(), first.end()), 1u);
  EXPECT_LE(*std::max_element(first.begin(), first.end()), 40u);
  EXPECT_EQ(first, delays(1));
  EXPECT_NE(first, delays(2));
}

TEST_F(VirtualDeviceTest, TheTraceTellsWhatRanWhere) {
  device.start_trace();
  char host[100];
  void* p = device.allocate(100, stream.get());
  stream->submit([](KernelContext&) {});
  device.copy_async(host, cpu(), p, virt(0), 100, *stream);
  device.free(p, stream.get());
  stream->synchronize();
  const std::vector<VirtualTraceEntry> trace = device.stop_trace();
  ASSERT_EQ(trace.size(), 2u);  // poisoning memory does not count as work of the program
  EXPECT_EQ(trace[0].kind, HostWork::Kind::kernel);
  EXPECT_EQ(trace[1].kind, HostWork::Kind::copy);
  EXPECT_EQ(trace[1].bytes, 100u);
  EXPECT_EQ(trace[1].device, virt(0));
  EXPECT_EQ(trace[1].stream, stream->id());
  EXPECT_LE(trace[0].end_ns, trace[1].begin_ns);
}

TEST_F(VirtualDeviceTest, CapacityLimitsWhatIsReserved) {
  device.trim_memory();
  const size_t held = device.memory_stats().reserved_bytes;
  device.set_capacity(held + (1 << 20));
  void* p = device.allocate(1 << 20, nullptr);
  try {
    device.allocate(1 << 20, nullptr);
    FAIL() << "expected OutOfMemory";
  } catch (const OutOfMemory& e) {
    EXPECT_NE(std::string(e.what()).find("limit " + std::to_string(held + (1 << 20))), std::string::npos)
        << e.what();
  }
  device.free(p, nullptr);
  p = device.allocate(1 << 20, nullptr);
  device.free(p, nullptr);
  EXPECT_THROW(device.set_capacity(SIZE_MAX), InvalidArgument);
}

TEST_F(VirtualDeviceTest, CachedMemoryOfAnotherSizeIsGivenBackWhenShort) {
  device.trim_memory();
  device.set_capacity(device.memory_stats().reserved_bytes + (2 << 20));
  std::vector<void*> small;
  for (int i = 0; i < 20; ++i) small.push_back(device.allocate(60'000, nullptr));
  for (void* p : small) device.free(p, nullptr);
  void* p = device.allocate(2 << 20, nullptr);  // fits only after the small segments have been released
  device.free(p, nullptr);
}

// If memory is short, an allocation is neither refused nor served too early. The stream waits for the memory;
// the host does not block.
TEST_F(VirtualDeviceTest, WhenShortAStreamWaitsForAnothersMemory) {
  constexpr size_t kBytes = 1 << 20;
  auto other = device.new_stream(StreamKind::compute);
  device.trim_memory();
  device.set_capacity(device.memory_stats().reserved_bytes + kBytes);
  const uint64_t waits = device.memory_stats().stream_waits;
  auto gate = host_ops().hold(*stream);
  auto* p = static_cast<uint32_t*>(device.allocate(kBytes, stream.get()));
  host_ops().fill(*stream, p, kBytes / 4, 1);
  device.free(p, stream.get());
  EXPECT_THROW(device.allocate(kBytes, nullptr), OutOfMemory);
  auto* q = static_cast<uint32_t*>(device.allocate(kBytes, other.get()));
  EXPECT_EQ(device.memory_stats().stream_waits, waits + 1);
  host_ops().fill(*other, q, kBytes / 4, 2);
  auto event = device.new_event();
  other->record(*event);
  EXPECT_EQ(event->query(), EventStatus::pending);
  device.free(q, nullptr);  // still ordered after the first use
  EXPECT_THROW(device.allocate(kBytes, nullptr), OutOfMemory);
  gate->open();
  other->synchronize();
  EXPECT_EQ(event->query(), EventStatus::complete);
}

TEST_F(VirtualDeviceTest, TheNthAllocationFails) {
  device.fail_next_allocation(2);
  void* p = device.allocate(64, nullptr);
  EXPECT_THROW(device.allocate(64, nullptr), OutOfMemory);
  device.free(device.allocate(64, nullptr), nullptr);
  device.free(p, nullptr);
}

TEST_F(VirtualDeviceTest, TheNthKernelFailsWithoutRunning) {
  int ran = 0;
  device.fail_next_kernel(3);
  for (int i = 0; i < 5; ++i) stream->submit([&](KernelContext&) { ++ran; });
  EXPECT_THROW(stream->synchronize(), DeviceError);
  EXPECT_EQ(ran, 4);
  EXPECT_NO_THROW(stream->synchronize());
  EXPECT_EQ(device.lost(), nullptr);
}

TEST_F(VirtualDeviceTest, TheNthCopyFailsWithoutRunning) {
  uint32_t in[2] = {5, 6}, out = 0;
  auto* p = static_cast<uint32_t*>(device.allocate(4, nullptr));
  device.fail_next_copy(2);
  device.fail_next_kernel(0);
  device.copy_async(p, virt(0), &in[0], cpu(), 4, *stream);
  stream->submit([](KernelContext&) {});
  device.copy_async(p, virt(0), &in[1], cpu(), 4, *stream);
  device.copy_async(&out, cpu(), p, virt(0), 4, *stream);
  EXPECT_THROW(stream->synchronize(), DeviceError);
  EXPECT_EQ(out, 5u);
  device.free(p, nullptr);
}

TEST_F(VirtualDeviceTest, CopiesOfForeignAddressesAreRefused) {
  char host[64] = {};
  void* p = device.allocate(64, nullptr);
  EXPECT_THROW(device.copy_async(host, virt(0), p, virt(0), 64, *stream), InvalidArgument);
  EXPECT_THROW(device.copy_async(p, virt(1), host, cpu(), 64, *stream), InvalidArgument);
  EXPECT_THROW(device.copy_async(p, virt(0), host, gpu(0), 64, *stream), InvalidArgument);
  device.free(p, nullptr);
}

TEST_F(VirtualDeviceTest, ALostDeviceFailsEverythingAndHangsNothing) {
  VirtualDevice& healthy = virtual_device(1);
  auto other = healthy.new_stream(StreamKind::compute);
  auto blocked = device.new_stream(StreamKind::compute);
  auto never = other->mark();
  auto before = device.new_event(), after = device.new_event(), there = healthy.new_event();
  auto gate = host_ops().hold(*stream);
  bool ran = false;
  stream->submit([&](KernelContext&) { ran = true; });
  stream->record(*before);
  other->wait(*before);
  other->record(*there);
  std::promise<std::exception_ptr> status;
  stream->notify([&](std::exception_ptr error) { status.set_value(std::move(error)); });
  void* p = device.allocate(64, stream.get());

  device.lose();
  gate->open();
  EXPECT_NE(text_of(status.get_future().get()).find("lost"), std::string::npos);
  EXPECT_FALSE(ran);
  EXPECT_EQ(before->query(), EventStatus::failed);
  EXPECT_NE(device.lost(), nullptr);
  stream->record(*after);
  EXPECT_THROW(stream->synchronize(), DeviceError);
  EXPECT_THROW(stream->synchronize(), DeviceError);
  EXPECT_EQ(after->query(), EventStatus::failed);
  EXPECT_THROW(device.allocate(64, nullptr), DeviceError);
  device.free(p, stream.get());
  std::promise<std::exception_ptr> late;
  stream->notify([&](std::exception_ptr error) { late.set_value(std::move(error)); });
  EXPECT_NE(late.get_future().get(), nullptr);

  other->synchronize();  // it had waited for the lost device
  EXPECT_EQ(there->query(), EventStatus::complete);
  healthy.free(healthy.allocate(64, nullptr), nullptr);
}

TEST_F(VirtualDeviceTest, AStreamOfALostDeviceStopsWaitingForOthers) {
  auto other = virtual_device(1).new_stream(StreamKind::compute);
  auto event = virtual_device(1).new_event();
  auto gate = host_ops().hold(*other);
  other->record(*event);
  stream->wait(*event);
  device.lose();
  EXPECT_THROW(stream->synchronize(), DeviceError);
  EXPECT_EQ(event->query(), EventStatus::pending);
}

TEST_F(VirtualDeviceTest, ACopyFromALostDeviceFailsOnTheOther) {
  VirtualDevice& healthy = virtual_device(1);
  auto other = healthy.new_stream(StreamKind::copy_in);
  void* p = device.allocate(64, nullptr);
  void* q = healthy.allocate(64, nullptr);
  device.lose();
  healthy.copy_async(q, virt(1), p, virt(0), 64, *other);
  EXPECT_THROW(other->synchronize(), DeviceError);
  EXPECT_NO_THROW(other->synchronize());
  device.free(p, nullptr);
  healthy.free(q, nullptr);
}

TEST_F(VirtualDeviceTest, ARestoredDeviceWorks) {
  device.lose();
  EXPECT_THROW(stream->synchronize(), DeviceError);
  device.restore();
  stream->synchronize();
  void* p = device.allocate(64, nullptr);
  device.free(p, nullptr);
}

TEST_F(VirtualDeviceTest, ATaskMayUseMemoryThatItAllocatesOnItsOwnStream) {
  auto* p = static_cast<uint32_t*>(device.allocate(4096, stream.get()));
  host_ops().fill(*stream, p, 1024, 1);
  std::promise<bool> apart;
  auto gate = host_ops().hold(*stream);
  stream->submit([&](KernelContext& context) {
    // p is freed after this task is submitted, but the task after this one still reads it.
    void* mine = context.device().allocate(4096, stream.get());
    apart.set_value(mine != p);
    context.device().free(mine, stream.get());
  });
  stream->submit([=](KernelContext& context) { (void)*static_cast<volatile uint32_t*>(context.ptr(p)); });
  device.free(p, stream.get());
  gate->open();
  EXPECT_TRUE(apart.get_future().get());
  stream->synchronize();
}

TEST_F(VirtualDeviceTest, AForkedChildIsRefused) {
  stream->submit([](KernelContext&) {});
  const pid_t child = test::fork_at_rest();
  if (child == 0) {
    int code = 1;
    try {
      stream->submit([](KernelContext&) {});
    } catch (const InvalidState&) {
      code = 0;
    }
    stream.reset();  // must not wait for a thread that only the parent has
    _exit(code);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(VirtualOptionsTest, AreChecked) {
  EXPECT_THROW(set_virtual_options({.devices = 65}), InvalidArgument);
  EXPECT_THROW(set_virtual_options({.min_delay_us = 2, .max_delay_us = 1}), InvalidArgument);
  EXPECT_THROW(set_virtual_options({.copy_bytes_per_second = 0}), InvalidArgument);
}

}  // namespace mx
