// NVTX ranges of the engine's operations, with a tool that NVTX loads. Each test is a process of its own,
// because NVTX looks for the tool once.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <string>

#include "engine/device/tool_range.h"
#include "engine/engine.h"
#include "engine/segment.h"

namespace mx {
namespace {

using CountFn = int (*)(const char*);

void in_fresh_process(const std::function<int()>& body) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(std::_Exit(body()), ::testing::ExitedWithCode(0), "");
}

CountFn counter() {
  void* const tool = ::dlopen(MX_NVTX_TOOL, RTLD_NOW | RTLD_NOLOAD);
  return tool == nullptr ? nullptr : reinterpret_cast<CountFn>(::dlsym(tool, "mx_counted_ranges"));
}

void run_operations() {
  Engine engine(EngineOptions{.threads = 2});
  const Var v = engine.new_var(), w = engine.new_var();
  for (int i = 0; i < 10; ++i) engine.push([] {}, {.updates = {v}, .name = "plain"});
  for (int i = 0; i < 3; ++i) {
    engine.push([](RunContext run) { run.stream()->submit([](KernelContext&) {}); },
                {.reads = {v}, .updates = {w}, .context = virt(0), .name = "on a device"});
    engine.push_async([](RunContext, Completion done) { done(); }, {.updates = {w}, .name = "by token"});
    engine.push([] { throw std::runtime_error("no"); }, {.writes = {w}, .name = "failing"});
    engine.push([] {}, {.updates = {w}, .name = "skipped"});
  }
  engine.push([] {}, {.writes = {w}});
  Segment segment = engine.record([&] { engine.push([] {}, {.updates = {v}, .name = "node"}); });
  for (int i = 0; i < 5; ++i) segment.replay();
  try {
    engine.wait_all();
  } catch (const std::exception&) {
  }
}

TEST(Nvtx, EveryOperationThatRunsIsARangeWithItsName) {
  in_fresh_process([] {
    ::setenv("NVTX_INJECTION64_PATH", MX_NVTX_TOOL, 1);
    if (!tool_listens()) return 1;
    run_operations();
    const CountFn counted = counter();
    if (counted == nullptr) return 2;
    const int plain = counted("plain"), device = counted("on a device"), token = counted("by token"),
              failing = counted("failing"), unnamed = counted("operation"), node = counted("node");
    if (plain != 10 || device != 1 || token != 1 || failing != 3 || unnamed != 1 || node != 5) return 3;
    if (counted("skipped") != 0) return 4;
    const int begun = plain + device + token + failing + unnamed + node + counted("replay");
    return counted(nullptr) == begun ? 0 : 5;
  });
}

TEST(Nvtx, TheSwitchTurnsThemOff) {
  in_fresh_process([] {
    ::setenv("NVTX_INJECTION64_PATH", MX_NVTX_TOOL, 1);
    ::setenv("MX_NVTX", "0", 1);
    run_operations();
    return tool_listens() || counter() != nullptr ? 1 : 0;  // the tool is not even loaded
  });
}

TEST(Nvtx, WithoutAToolNobodyListens) {
  in_fresh_process([] {
    ::unsetenv("NVTX_INJECTION64_PATH");
    run_operations();
    return tool_listens() ? 1 : 0;
  });
}

}  // namespace
}  // namespace mx
