// Wrong use must produce a typed error, never a hang or a crash.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"
#include "tests/support/forking.h"
#include "tests/support/held.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;
using test::Gate;
using test::Hold;
using test::LogCapture;

using BadUse = test::EngineTest;
INSTANTIATE_TEST_SUITE_P(Modes, BadUse, ::testing::ValuesIn(test::all_cases()), test::CaseName());

TEST_P(BadUse, WaitingInsideAnOperationThrows) {
  Var v = e_.new_var();
  std::vector<std::string> texts;
  e_.push(
      [&] {
        texts.push_back(error_of<InvalidState>([&] { e_.wait(v); }));
        texts.push_back(error_of<InvalidState>([&] { e_.wait(v, 10); }));
        texts.push_back(error_of<InvalidState>([&] { e_.wait_all(); }));
        texts.push_back(error_of<InvalidState>([&] { e_.wait_all(10); }));
        texts.push_back(error_of<InvalidState>([&] { e_.shutdown(); }));
      },
      {.writes = {v}, .name = "impatient"});
  e_.wait(v);
  ASSERT_EQ(5u, texts.size());
  for (const std::string& text : texts) EXPECT_TRUE(contains(text, "impatient")) << text;
  EXPECT_TRUE(contains(texts[0], "bad_use_test.cc")) << texts[0];
}

TEST_P(BadUse, WaitingInsideAnAsynchronousOperationThrows) {
  Var v = e_.new_var();
  e_.push_async([&](RunContext, Completion) { e_.wait_all(); }, {.writes = {v}, .name = "impatient"});
  EXPECT_TRUE(contains(error_of<InvalidState>([&] { e_.wait(v); }), "impatient"));
  error_of<InvalidState>([&] { e_.wait_all(); });
}

TEST_P(BadUse, WaitingForAnotherEngineInsideAnOperationThrows) {
  Engine other(GetParam().options);
  Var v = e_.new_var(), w = other.new_var();
  e_.push([&] { other.wait(w); }, {.writes = {v}});
  error_of<InvalidState>([&] { e_.wait(v); });
  error_of<InvalidState>([&] { e_.wait_all(); });
}

TEST_P(BadUse, AfterShutdownPushesAreRefused) {
  Var v = e_.new_var();
  int value = 0;
  e_.push([&] { value = 1; }, {.writes = {v}});
  e_.wait(v);  // this thread may have run the operation itself
  e_.push([&] { value = 2; }, {.writes = {v}});
  e_.shutdown();
  EXPECT_EQ(2, value);
  error_of<InvalidState>([&] { e_.push([] {}, {.writes = {v}}); });
  error_of<InvalidState>([&] { e_.push_async([](RunContext, Completion) {}, {}); });
  error_of<InvalidState>([&] { e_.new_var(); });
  error_of<InvalidState>([&] { e_.recover(v); });
  error_of<InvalidState>([&] { e_.record([] {}); });
  e_.wait(v);
  e_.wait_all();
  e_.delete_var(v);
  e_.shutdown();
}

TEST(Shutdown, TheSecondOneWaitsForWhatTheFirstOneDrains) {
  EngineOptions options;
  options.threads = 2;
  Engine e(options);
  Gate gate;
  std::atomic<bool> ended{false}, returned{false};
  e.push([&] {
    gate.pass();
    ended = true;
  });
  std::thread first([&] { e.shutdown(); });
  while (e.stats().waiting == 0) std::this_thread::yield();
  std::thread opener([&] {
    while (e.stats().waiting < 2 && !returned) std::this_thread::yield();
    gate.open();
  });
  e.shutdown();
  EXPECT_TRUE(ended);
  returned = true;
  first.join();
  opener.join();
}

TEST(Shutdown, DoesNotWaitForWorkersThatSearchForWork) {
  EngineOptions options;
  options.threads = 2;
  options.spin_us = INT32_MAX;  // half an hour
  Engine e(options);
  for (int i = 0; i < 100; ++i) e.push([] {});
  e.wait_all();
}

TEST_P(BadUse, OperationsMayPushWhileTheEngineDrains) {
  Hold hold;
  Var v = e_.new_var();
  std::atomic<int> n{0};
  std::function<void()> link = [&] {
    if (++n < 100) e_.push(link, {.updates = {v}});
  };
  e_.push(link, {.updates = {v}});
  e_.shutdown();
  EXPECT_EQ(100, n.load());
}

TEST_P(BadUse, ANullFunctionIsRefused) {
  std::function<void()> none;
  void (*pointer)() = nullptr;
  std::function<void(RunContext, Completion)> none_async;
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { e_.push(none, {.name = "nothing"}); }), "nothing"));
  error_of<InvalidArgument>([&] { e_.push(pointer); });
  error_of<InvalidArgument>([&] { e_.push_async(none_async); });
  error_of<InvalidArgument>([&] { e_.record(nullptr); });
  EXPECT_EQ(0u, e_.stats().pushed);
}

TEST_P(BadUse, UnknownDevicesAreRefused) {
  Var v = e_.new_var();
  error_of<InvalidArgument>([&] { e_.push([] {}, {.writes = {v}, .context = virt(60000)}); });
  e_.push([] {}, {.updates = {v}});
  e_.wait(v);
  EXPECT_EQ(1u, e_.stats().pushed);
}

TEST_P(BadUse, ResumeWithoutPauseThrows) {
  error_of<InvalidState>([&] { e_.resume(); });
  e_.pause();
  e_.pause();
  e_.resume();
  e_.resume();
  error_of<InvalidState>([&] { e_.resume(); });
}

TEST_P(BadUse, APausedEngineDrainsAtItsEnd) {
  std::atomic<int> n{0};
  {
    Engine e(GetParam().options);
    Var v = e.new_var();
    e.pause();
    for (int i = 0; i < 100; ++i) e.push([&] { ++n; }, {.updates = {v}});
    EXPECT_FALSE(e.wait(v, 1));
    EXPECT_EQ(0, n.load());
  }
  EXPECT_EQ(100, n.load());
}

TEST_P(BadUse, AnEngineWithPendingOperationsDrainsAtItsEnd) {
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> n{0};
    {
      Engine e(GetParam().options);
      Var v = e.new_var(), w = e.new_var();
      for (int i = 0; i < 50; ++i) e.push([&] { ++n; }, {.reads = {w}, .updates = {v}});
    }
    EXPECT_EQ(50, n.load());
  }
}

TEST_P(BadUse, OptionsAreChecked) {
  for (const auto& spoil : std::vector<std::function<void(EngineOptions&)>>{
           [](EngineOptions& o) { o.threads = -1; }, [](EngineOptions& o) { o.threads = 1'000'000; },
           [](EngineOptions& o) { o.max_ops_in_flight = 0; }, [](EngineOptions& o) { o.spin_us = -1; },
           [](EngineOptions& o) { o.watchdog_ms = -5; }, [](EngineOptions& o) { o.history = -1; }}) {
    EngineOptions options = GetParam().options;
    spoil(options);
    error_of<InvalidArgument>([&] { Engine e(options); });
  }
}

TEST_P(BadUse, AForkedChildIsToldSo) {
  Var v = e_.new_var();
  e_.push([] {}, {.writes = {v}});
  e_.wait(v);
  const pid_t child = test::fork_at_rest();
  ASSERT_GE(child, 0);
  if (child == 0) {
    int right = 0;
    const auto expect = [&](auto&& f) {
      try {
        f();
      } catch (const InvalidState& e) {
        right += contains(e.what(), "fork");
      } catch (...) {
      }
    };
    expect([&] { e_.push([] {}, {.writes = {v}}); });
    expect([&] { e_.wait(v); });
    expect([&] { e_.wait_all(); });
    expect([&] { e_.new_var(); });
    expect([&] { Engine another(GetParam().options); });
    expect([&] { e_.record([] {}); });
    e_.delete_var(v);
    e_.shutdown();
    _exit(right == 6 ? 0 : 100 + right);
  }
  int status = 0;
  ASSERT_EQ(child, waitpid(child, &status, 0));
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(0, WEXITSTATUS(status));
  e_.push([] {}, {.updates = {v}});  // the engine of the parent process still works after the fork
  e_.wait(v);
}

class Watchdog : public ::testing::TestWithParam<test::EngineCase> {
 protected:
  static EngineOptions options() {
    EngineOptions options = GetParam().options;
    options.watchdog_ms = 5;
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(Modes, Watchdog,
                         ::testing::Values(test::threaded_case(2),
                                           test::mode_case(EngineMode::check, "check"),
                                           test::mode_case(EngineMode::naive, "naive"),
                                           test::mode_case(EngineMode::fuzz, "fuzz1", 1)),
                         test::CaseName());

TEST_P(Watchdog, NamesARunningOperation) {
  LogCapture log;
  Gate gate;
  Engine e(options());
  Var v = e.new_var();
  std::thread pusher([&] {  // in naive mode the push itself blocks
    e.push([&] { gate.pass(); }, {.writes = {v}, .name = "stuck"});
    e.wait(v);
  });
  const std::string line = log.wait_for("[stuck]");
  EXPECT_TRUE(contains(line, "bad_use_test.cc")) << line;
  EXPECT_TRUE(contains(line, "running")) << line;
  gate.open();
  pusher.join();
}

TEST_P(Watchdog, NamesAnAsynchronousOperation) {
  LogCapture log;
  Hold hold;
  Engine e(options());
  Var v = e.new_var();
  std::thread pusher([&] {
    e.push_async(hold.operation(), {.writes = {v}, .name = "no answer"});
    e.wait(v);
  });
  const std::string line = log.wait_for("[no answer]");
  EXPECT_TRUE(contains(line, "completion")) << line;
  hold.release();
  pusher.join();
}

// An operation that another thread's completion makes ready runs on that thread, long after its push.
TEST_P(Watchdog, NamesAnOperationThatACompletionStarts) {
  LogCapture log;
  Hold hold;
  Gate gate;
  Engine e(options());
  Var v = e.new_var();
  e.push_async(hold.operation(), {.writes = {v}});
  e.push([&] { gate.pass(); }, {.updates = {v}, .name = "stuck"});
  std::thread completer([&] {
    hold.release();
    e.wait(v);
  });
  log.wait_for("[stuck]");
  gate.open();
  completer.join();
}

TEST_P(Watchdog, NamesAnOperationThatTheWaiterRuns) {
  LogCapture log;
  Gate gate;
  Engine e(options());
  Var v = e.new_var();
  std::thread opener([&] {
    log.wait_for("[stuck]");
    gate.open();
  });
  e.push([&] { gate.pass(); }, {.writes = {v}, .name = "stuck"});
  e.wait(v);
  opener.join();
}

// The monitor sleeps while the engine is idle. An operation that begins while the monitor goes to sleep must
// wake it.
TEST_P(Watchdog, NamesAnOperationThatBeginsWhileTheMonitorGoesToSleep) {
  EngineOptions each = options();
  each.watchdog_ms = 1;
  Engine e(each);
  Var v = e.new_var();
  for (int round = 0; round < 50; ++round) {
    LogCapture log;
    Hold hold;
    Gate gate;
    e.push_async(hold.operation(), {.writes = {v}});
    e.push([&] { gate.pass(); }, {.updates = {v}, .name = "stuck"});
    std::thread completer([&] {
      std::this_thread::sleep_for(
          std::chrono::microseconds(20 * round));  // the monitor wakes each millisecond
      hold.release();
      e.wait(v);
    });
    log.wait_for("[stuck]");
    gate.open();
    completer.join();
  }
}

}  // namespace
}  // namespace mx
