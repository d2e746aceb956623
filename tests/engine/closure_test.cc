// The lifetime of an operation's function: constructed once, destroyed once, and destroyed before any
// dependant starts.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"
#include "tests/support/held.h"

namespace mx {
namespace {

using test::error_of;
using test::Hold;

using Closure = test::EngineTest;
INSTANTIATE_TEST_SUITE_P(Modes, Closure, ::testing::ValuesIn(test::all_cases()), test::CaseName());

// Counts the objects that hold a value, no matter how often they are copied or moved.
struct Counted {
  explicit Counted(std::atomic<int>& counter) : live(&counter) { ++*live; }
  Counted(const Counted& other) : live(other.live) { ++*live; }
  Counted(Counted&& other) noexcept : live(other.live) { ++*live; }
  ~Counted() { --*live; }
  std::atomic<int>* live;
};

TEST_P(Closure, MoveOnly) {
  Var v = e_.new_var();
  int value = 0;
  auto owned = std::make_unique<int>(42);
  e_.push([&value, owned = std::move(owned)] { value = *owned; }, {.writes = {v}});
  e_.push_async(
      [p = std::make_unique<int>(1), &value](RunContext, Completion done) {
        value += *p;
        done();
      },
      {.updates = {v}});
  e_.wait(v);
  EXPECT_EQ(43, value);
}

template <size_t kBytes, size_t kAlign>
struct Sized {
  alignas(kAlign) std::array<unsigned char, kBytes> bytes;
  size_t* sum;
  bool* aligned;
  void operator()(RunContext) const {
    *sum = std::accumulate(bytes.begin(), bytes.end(), size_t{0});
    *aligned = reinterpret_cast<uintptr_t>(bytes.data()) % kAlign == 0;
  }
};

template <size_t kBytes, size_t kAlign = 1>
void expect_kept(Engine& e) {
  Var v = e.new_var();
  size_t sum = 0;
  bool aligned = false;
  Sized<kBytes, kAlign> fn;
  for (size_t i = 0; i < kBytes; ++i) fn.bytes[i] = static_cast<unsigned char>(i * 7 + 1);
  fn.sum = &sum;
  fn.aligned = &aligned;
  const size_t expected = std::accumulate(fn.bytes.begin(), fn.bytes.end(), size_t{0});
  e.push(fn, {.writes = {v}});
  e.wait(v);
  EXPECT_EQ(expected, sum) << kBytes;
  EXPECT_TRUE(aligned) << kAlign;
  e.delete_var(v);
}

TEST_P(Closure, AnySizeAndAlignment) {
  expect_kept<1>(e_);
  expect_kept<16>(e_);
  expect_kept<32>(e_);
  expect_kept<33>(e_);
  expect_kept<48>(e_);
  expect_kept<49>(e_);
  expect_kept<100'000>(e_);
  expect_kept<16, 16>(e_);
  expect_kept<32, 32>(e_);
  expect_kept<64, 64>(e_);
  expect_kept<512, 256>(e_);
}

TEST_P(Closure, DestroyedOnceAndBeforeDependantsStart) {
  for (const char* kind : {"small", "large", "async", "failing", "failing async"}) {
    SCOPED_TRACE(kind);
    const std::string name = kind;
    std::atomic<int> live{0};
    int seen = -1;
    Var v = e_.new_var();
    {
      Counted c(live);
      if (name == "small") {
        e_.push([c = std::move(c)] {}, {.writes = {v}});
      } else if (name == "large") {
        e_.push([c = std::move(c), pad = std::array<char, 200>{}] { (void)pad; }, {.writes = {v}});
      } else if (name == "async") {
        e_.push_async([c = std::move(c)](RunContext, Completion done) { done(); }, {.writes = {v}});
      } else if (name == "failing") {
        e_.push([c = std::move(c)] { throw std::runtime_error("no"); }, {.writes = {v}});
      } else {
        e_.push_async([c = std::move(c)](RunContext, Completion) { throw std::runtime_error("no"); },
                      {.writes = {v}});
      }
    }
    // A write recovers the variable, so this operation always runs.
    e_.push([&] { seen = live.load(); }, {.writes = {v}});
    e_.wait(v);
    EXPECT_EQ(0, seen);
    EXPECT_EQ(0, live.load());
    if (name.substr(0, 7) == "failing") error_of<OperationError>([&] { e_.wait_all(); });
  }
}

TEST_P(Closure, DestroyedWithoutRunningWhenSkippedOrCancelled) {
  std::atomic<int> live{0};
  bool ran = false;
  Var v = e_.new_var();
  Hold hold;
  e_.push_async(hold.operation(), {.writes = {v}});
  for (int i = 0; i < 3; ++i) {
    Counted counted(live);
    e_.push([c = std::move(counted), &ran] { ran = true; }, {.updates = {v}});
  }
  e_.cancel();
  hold.release();
  error_of<Cancelled>([&] { e_.wait_all(); });
  EXPECT_EQ(0, live.load());
  {
    Counted counted(live);
    e_.push_async(
        [c = std::move(counted), &ran](RunContext, Completion done) {
          ran = true;
          done();
        },
        {.reads = {v}});
  }
  e_.wait_all();
  EXPECT_EQ(0, live.load());
  EXPECT_FALSE(ran);
}

struct ThrowsWhenCopied {
  explicit ThrowsWhenCopied(int* copies_left) : left(copies_left) {}
  ThrowsWhenCopied(const ThrowsWhenCopied& other) : left(other.left) {
    if (--*left < 0) throw std::domain_error("cannot be copied");
  }
  void operator()() const {}
  int* left;
};

template <class Fn>
void expect_nothing_queued(Engine& e, const Fn& fn, int* copies_left) {
  Var v = e.new_var();
  const uint64_t pushed = e.stats().pushed;
  for (int i = 0; i < 200; ++i) {
    *copies_left = 0;
    error_of<std::domain_error>([&] { e.push(fn, {.updates = {v}, .bytes = 100}); });
  }
  EXPECT_EQ(pushed, e.stats().pushed);
  EXPECT_EQ(0u, e.stats().bytes_in_flight);
  *copies_left = 1;
  e.push(fn, {.updates = {v}});
  e.wait(v);
  EXPECT_EQ(pushed + 1, e.stats().pushed);
}

// Pushes an operation in its destructor.
struct PushesAtItsEnd {
  PushesAtItsEnd(Engine& engine, Var var, int& counter) : e(&engine), v(var), count(&counter) {}
  PushesAtItsEnd(PushesAtItsEnd&& other) noexcept
      : e(std::exchange(other.e, nullptr)), v(other.v), count(other.count) {}
  ~PushesAtItsEnd() {
    if (e != nullptr) e->push([c = count] { ++*c; }, {.updates = {v}});
  }
  Engine* e;
  Var v;
  int* count;
};

TEST_P(Closure, MayPushWhenItIsDestroyed) {
  for (const Context context : {cpu(), virt(0)}) {
    Var counted = e_.new_var(), v = e_.new_var();
    int count = 0;
    for (int i = 0; i < 20; ++i) {
      // One operation that runs, one that fails, one that is skipped.
      e_.push([p = PushesAtItsEnd(e_, counted, count)] {}, {.writes = {v}, .context = context});
      e_.push([p = PushesAtItsEnd(e_, counted, count)] { throw std::runtime_error("fails"); },
              {.updates = {v}, .context = context});
      e_.push([p = PushesAtItsEnd(e_, counted, count)] {}, {.updates = {v}, .context = context});
    }
    EXPECT_THROW(e_.wait_all(), OperationError);
    e_.wait_all();  // waits for the operations that the last destructors pushed
    EXPECT_EQ(60, count);
    e_.delete_var(counted);
    e_.delete_var(v);
  }
}

TEST_P(Closure, ThrowingCopyQueuesNothing) {
  int copies_left = 0;
  const ThrowsWhenCopied small(&copies_left);
  expect_nothing_queued(e_, small, &copies_left);
  const struct Large : ThrowsWhenCopied {
    using ThrowsWhenCopied::ThrowsWhenCopied;
    char pad[200] = {};
  } large(&copies_left);
  expect_nothing_queued(e_, large, &copies_left);
}

}  // namespace
}  // namespace mx
