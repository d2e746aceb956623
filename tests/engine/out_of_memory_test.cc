// Pushed operations run even if the host has no memory left. This is a separate program because it makes
// operator new fail.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "engine/device/virtual/virtual_device.h"
#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"
#include "tests/support/held.h"

namespace {

std::atomic<bool> no_memory{false};
// The n-th allocation of this thread from now on fails; 0: none fails.
thread_local int fail_at = 0;

bool refuse() { return no_memory.load() || (fail_at > 0 && --fail_at == 0); }

}  // namespace

// Not inlined: otherwise GCC warns that memory from operator new is passed to free().
[[gnu::noinline]] void* operator new(size_t bytes) {
  void* memory = refuse() ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void* operator new(size_t bytes, std::align_val_t align) {
  void* memory = refuse() ? nullptr : std::aligned_alloc(static_cast<size_t>(align), bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
// AddressSanitizer has its own versions of these two: memory from them could not be passed to free().
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return refuse() ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
}
[[gnu::noinline]] void* operator new(size_t bytes, std::align_val_t align, const std::nothrow_t&) noexcept {
  return refuse() ? nullptr : std::aligned_alloc(static_cast<size_t>(align), bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace mx {
namespace {

using test::error_of;
using test::Gate;
using test::Hold;

/// Starts all workers that the engine may call. Without this, oneTBB would end the process if a thread that
/// it starts finds no memory.
void start_workers(Engine& e) {
  const EngineMode mode = e.options().mode;
  if (mode == EngineMode::naive || mode == EngineMode::fuzz) return;
  std::barrier meeting(e.options().threads + 1);
  for (int i = 0; i < e.options().threads; ++i) e.push([&] { meeting.arrive_and_wait(); });
  e.push([&] { meeting.arrive_and_wait(); }, {.lane = StreamKind::comm});
  while (e.stats().in_flight > 0) std::this_thread::yield();
}

/// During its lifetime there is no memory. Precondition: start_workers() has been called.
struct Famine {
  Famine() { no_memory = true; }
  ~Famine() { no_memory = false; }
};

void drain(Engine& e) {
  while (e.stats().in_flight > 0) std::this_thread::yield();
}

using OutOfHostMemory = test::EngineTest;
INSTANTIATE_TEST_SUITE_P(Modes, OutOfHostMemory, ::testing::ValuesIn(test::all_cases()), test::CaseName());

TEST_P(OutOfHostMemory, ReadyOperationsOfAnyPriorityRun) {
  start_workers(e_);
  Hold hold;
  Var v = e_.new_var();
  std::atomic<int> n{0};
  e_.push_async(hold.operation(), {.writes = {v}});
  for (int i = 0; i < 5000; ++i) e_.push([&] { ++n; }, {.reads = {v}, .priority = i % 11 - 5});
  {
    Famine famine;
    hold.release();
    if (GetParam().options.mode == EngineMode::fuzz) e_.wait_all();  // in mode fuzz no other thread runs them
    drain(e_);
  }
  EXPECT_EQ(5000, n.load());
}

TEST_P(OutOfHostMemory, FailuresPoisonAllTheSame) {
  start_workers(e_);
  Hold hold;
  Var v = e_.new_var(), w = e_.new_var();
  std::atomic<int> n{0};
  e_.push_async(hold.operation(), {.writes = {v}});
  e_.push([] { throw 7; }, {.reads = {v}, .writes = {w}, .name = "culprit"});
  e_.push([&] { ++n; }, {.updates = {w}});
  {
    Famine famine;
    hold.release();
    if (GetParam().options.mode == EngineMode::fuzz) e_.wait(v);
    drain(e_);
  }
  EXPECT_EQ(0, n.load());
  error_of<OutOfMemory>([&] { e_.wait(w); });
  error_of<OutOfMemory>([&] { e_.wait_all(); });
  e_.push([&] { ++n; }, {.writes = {w}});
  e_.wait(w);
  EXPECT_EQ(1, n.load());
}

// Ends the shortage on the thread that ran the function, when the function that caused it is destroyed.
struct EndOfShortage {
  ~EndOfShortage() { fail_at = 0; }
};

TEST_P(OutOfHostMemory, AnErrorThatCannotBeDescribedIsStillTheOperations) {
  start_workers(e_);
  const std::string words = "an index that is far outside of everything";
  const std::exception_ptr error = std::make_exception_ptr(InvalidArgument(words));
  // Starts at 2: the first allocation is the record of the failure, without which nothing can be kept.
  for (int n = 2; n < 12; ++n) {
    Var v = e_.new_var();
    e_.push(
        [&error, n, end = EndOfShortage()] {
          fail_at = n;
          std::rethrow_exception(error);
        },
        {.writes = {v}, .name = "culprit"});
    const std::string text = error_of<InvalidArgument>([&] { e_.wait(v); });
    EXPECT_TRUE(text.find(words) != std::string::npos) << text;
    error_of<InvalidArgument>([&] { e_.wait_all(); });
    e_.delete_var(v);
  }
}

TEST_P(OutOfHostMemory, CancelledOperationsEnd) {
  start_workers(e_);
  Hold hold;
  Var v = e_.new_var(), w = e_.new_var();
  std::atomic<int> n{0};
  e_.push_async(hold.operation(), {.writes = {v}});
  for (int i = 0; i < 100; ++i) e_.push([&] { ++n; }, {.reads = {v}, .updates = {w}});
  e_.cancel();
  {
    Famine famine;
    hold.release();
    if (GetParam().options.mode == EngineMode::fuzz) e_.wait(v, 0);
    drain(e_);
  }
  EXPECT_EQ(0, n.load());
  error_of<OutOfMemory>([&] { e_.wait(w); });
  EXPECT_THROW(e_.wait_all(), Error);
}

// The first push to an engine calls its first worker.
TEST_P(OutOfHostMemory, TheFirstPushIsNotLost) {
  for (int round = 0; round < 10; ++round) {
    Engine e(GetParam().options);
    Var v = e.new_var();
    std::atomic<int> n{0};
    start_workers(e);
    e.push([] {}, {.writes = {v}});  // allocates the state that the engine keeps per thread
    e.wait_all();
    Famine famine;
    for (int i = 0; i < 10; ++i) e.push([&] { ++n; }, {.updates = {v}, .priority = i});
    e.wait(v);
    EXPECT_EQ(10, n.load());
  }
}

// CPU operations that wait for a device.
TEST_P(OutOfHostMemory, OperationsBehindADeviceRun) {
  const bool waits_for_devices =
      e_.options().mode == EngineMode::naive || e_.options().mode == EngineMode::fuzz;
  start_workers(e_);
  Hold hold;
  Gate gate;
  if (waits_for_devices) gate.open();
  Var v = e_.new_var(), h = e_.new_var();
  std::atomic<int> n{0};
  e_.push([&](RunContext c) { c.stream()->submit([&](KernelContext&) { gate.pass(); }); },
          {.writes = {v}, .context = virt(0)});
  e_.push_async(hold.operation(), {.writes = {h}});
  for (int i = 0; i < 500; ++i) e_.push([&] { ++n; }, {.reads = {v, h}, .priority = i % 2});
  if (!waits_for_devices) gate.entered();
  {
    Famine famine;
    hold.release();
  }
  gate.open();
  e_.wait_all();
  EXPECT_EQ(500, n.load());
}

TEST_P(OutOfHostMemory, AnEngineStartsOrSaysWhyNot) {
  { Engine once(GetParam().options); }
  bool started = false;
  for (int n = 1; !started; ++n) {
    ASSERT_LT(n, 1000);
    fail_at = n;
    try {
      Engine e(GetParam().options);
      started = fail_at > 0;  // no allocation failed
      fail_at = 0;
      Var v = e.new_var();
      e.push([] {}, {.writes = {v}});
      e.wait(v);
    } catch (const std::bad_alloc&) {
    } catch (const OutOfMemory&) {
    }
    fail_at = 0;
  }
}

// Every failed push leaves the engine unchanged.
TEST_P(OutOfHostMemory, APushIsQueuedOrSaysWhyNot) {
  int pushed = 0, refused = 0;
  std::atomic<int> n{0};
  for (int round = 0; round < 20; ++round) {
    Engine e(GetParam().options);
    std::vector<Var> vars(12);
    for (Var& v : vars) v = e.new_var();
    fail_at = round + 1;
    try {
      e.push([&n, big = std::vector<int>(100)] { n += big[7] + 1; },
             {.updates = vars, .priority = round % 3, .lane = StreamKind::comm});
      ++pushed;
    } catch (const OutOfMemory&) {
      ++refused;
    } catch (const std::bad_alloc&) {  // thrown by the copy of the function
      ++refused;
    }
    fail_at = 0;
    e.push([&] { ++n; }, {.updates = vars, .lane = StreamKind::comm});
    ++pushed;
    e.wait_all();
    EXPECT_EQ(pushed, n.load());
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace mx
