// The stream suite on the virtual device (fast and slow) and on GPUs, and tests of features that only virtual
// devices have.
#include "tests/engine/stream_suite.h"

#include "engine/base/error.h"
#include "engine/device/registry.h"
#include "engine/device/virtual/virtual_device.h"
#include "tests/support/errors.h"

namespace mx::test {
namespace {

constexpr int kDevices = 3;

void set_delays() {
  for (int id = 0; id < kDevices; ++id) virtual_device(id).set_delay(7 + static_cast<uint64_t>(id), 0, 80);
}
void end_delays() {
  for (int id = 0; id < kDevices; ++id) virtual_device(id).set_delay(0, 0, 0);
}

INSTANTIATE_TEST_SUITE_P(Virtual, StreamSuite,
                         ::testing::Values(StreamSuiteParam{"one", {virt(0)}},
                                           StreamSuiteParam{"three", {virt(0), virt(1), virt(2)}},
                                           StreamSuiteParam{
                                               "slow", {virt(0), virt(1)}, set_delays, end_delays}),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Gpu, StreamSuite,
                         ::testing::Values(StreamSuiteParam{"one", {gpu(0)}},
                                           StreamSuiteParam{"two", {gpu(0), gpu(1)}}),
                         name_of);

class VirtualStreams : public StreamSuite {};
INSTANTIATE_TEST_SUITE_P(Virtual, VirtualStreams,
                         ::testing::Values(StreamSuiteParam{"two", {virt(0), virt(1)}}), name_of);

TEST_P(VirtualStreams, ALostDeviceFailsItsOwnAndLeavesTheOthersWorking) {
  struct Restore {
    ~Restore() { virtual_device(0).restore(); }
  } restore;
  {
    Engine& engine = start(2);
    auto gate = ops().new_meeting(2);
    auto a = array(4, 0), b = array(4, 1), c = array(4, 1), d = array(4, 1);
    push_fill(*b, 1);
    engine.push([&](RunContext run) { gate->attend(*run.stream()); },
                {.writes = {a->var}, .context = device(0), .name = "held"});
    engine.push([](RunContext) {},
                {.reads = {a->var}, .writes = {c->var}, .context = device(1), .name = "dependant"});
    virtual_device(0).lose();
    gate->host_attends();
    EXPECT_THROW(engine.wait(a->var), DeviceError);
    EXPECT_THROW(engine.wait(c->var), DeviceError);
    push_fill(*a, 2);  // allocations fail from now on
    EXPECT_THROW(engine.wait(a->var), DeviceError);
    push_add(*b, *b, *d);
    EXPECT_EQ(values(*d), std::vector<double>(4, 2));
    push_fill(*c, 3);
    EXPECT_EQ(values(*c), std::vector<double>(4, 3));
    EXPECT_THROW(engine.wait_all(), DeviceError);
  }
  engine_.reset();
}

TEST_P(VirtualStreams, AnInjectedKernelErrorHitsOneOperation) {
  Engine& engine = start();
  auto a = array(4), b = array(4);
  virtual_device(0).fail_next_kernel(2);
  push_fill(*a, 1);
  engine.wait(a->var);
  push_fill(*b, 1);
  EXPECT_THROW(engine.wait(b->var), DeviceError);
  push_fill(*b, 2);
  EXPECT_EQ(values(*b), std::vector<double>(4, 2));
  EXPECT_EQ(values(*a), std::vector<double>(4, 1));
  EXPECT_THROW(engine.wait_all(), DeviceError);
}

// In the modes that run operations inside their push, the push of an operation that needs a device's result
// waits for the device. Nobody else would run it: these modes have no workers.
TEST_P(VirtualStreams, InlineModesRunAnOperationThatNeedsADeviceInsideItsPush) {
  virtual_device(0).set_delay(3, 1000, 2000);
  for (const EngineMode mode : {EngineMode::naive, EngineMode::fuzz}) {
    EngineOptions options;
    options.mode = mode;
    Engine engine(options);
    Var a = engine.new_var(), b = engine.new_var();
    bool ran = false;
    engine.push([](RunContext run) { run.stream()->submit([](KernelContext&) {}); },
                {.writes = {a}, .context = device(0), .name = "on the device"});
    engine.push([&ran](RunContext) { ran = true; }, {.reads = {a}, .writes = {b}, .name = "on the host"});
    if (mode == EngineMode::naive) {
      EXPECT_TRUE(ran) << "without any wait";
    } else {
      engine.wait(b);
      EXPECT_TRUE(ran);
    }
    engine.delete_var(a);
    engine.delete_var(b);
  }
  virtual_device(0).set_delay(0, 0, 0);
}

// An operation that runs out of memory holds its earlier allocations while it asks for more. Other operations
// use the device meanwhile.
TEST_P(VirtualStreams, AnOperationThatFindsNoMemoryFailsAndTheOthersGoOn) {
  Engine& engine = start(2);
  auto a = array(4), b = array(4), c = array(4);
  push_fill(*b, 1);
  engine.push(
      [](RunContext run) {
        Stream& stream = *run.stream();
        struct Temporary {
          Stream& stream;
          void* memory;
          ~Temporary() { stream.device().free(memory, &stream); }
        } const held{stream, stream.device().allocate(100, &stream)};
        stream.device().allocate(size_t{1} << 50, &stream);
      },
      {.writes = {a->var}, .context = device(), .name = "hungry"});
  push_add(*a, *b, *c);
  push_add(*b, *b, *b);
  EXPECT_TRUE(contains(error_of<OutOfMemory>([&] { engine.wait(a->var); }), "[hungry]"));
  EXPECT_TRUE(contains(error_of<OutOfMemory>([&] { engine.wait(c->var); }), "[hungry]"));
  EXPECT_EQ(values(*b), std::vector<double>(4, 2));
  EXPECT_THROW(engine.wait_all(), OutOfMemory);
  push_fill(*a, 3);
  EXPECT_EQ(values(*a), std::vector<double>(4, 3));
}

}  // namespace
}  // namespace mx::test
