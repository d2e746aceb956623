// A program that exits while the engine is busy. Its argument selects what it does. exit_test runs it.
#include <malloc.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <thread>

#include "engine/engine.h"
#include "tests/support/forking.h"
#include "tests/support/held.h"

namespace {
bool is_forked_child = false;
}

// Turns LeakSanitizer off in a forked child: it would look for the parent's threads and report what they hold
// as leaks.
extern "C" int __lsan_is_turned_off() { return is_forked_child ? 1 : 0; }

namespace {

using namespace mx;

int count = 0;

// Constructed before the engine, so destroyed after the engine has drained.
struct Outlives {
  Var v;
  bool used = false;
  ~Outlives() {
    if (!used) return;
    if (count != 1000) std::abort();  // the engine must have drained
    Engine::get().delete_var(v);
    try {
      Engine::get().push([] {}, {.updates = {v}});
      std::abort();
    } catch (const InvalidState&) {
    }
    try {
      Engine::get().new_var();
      std::abort();
    } catch (const InvalidState&) {
    }
  }
} outlives;

void use_default_engine() {
  Engine& e = Engine::get();
  outlives.v = e.new_var();
  outlives.used = true;
  for (int i = 0; i < 1000; ++i) e.push([] { ++count; }, {.updates = {outlives.v}});
}

// Limits the address space to what is mapped now plus `more_bytes`; 0 removes the limit.
void limit_memory(size_t more_bytes) {
  long pages = 0;
  FILE* statm = std::fopen("/proc/self/statm", "r");
  if (statm == nullptr || std::fscanf(statm, "%ld", &pages) != 1) std::abort();
  std::fclose(statm);
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = more_bytes == 0 ? limit.rlim_max : static_cast<rlim_t>(pages) * 4096 + more_bytes;
  if (setrlimit(RLIMIT_AS, &limit) != 0) std::abort();
}

// Calls f until it throws OutOfMemory; returns the number of calls that succeeded. Any other exception ends
// the process.
template <class F>
int until_out_of_memory(F&& push) {
  for (int n = 0;; ++n) {
    try {
      push();
    } catch (const OutOfMemory&) {
      return n;
    }
  }
}

void expect(bool condition, const char* what) {
  if (condition) return;
  std::puts(what);
  std::exit(1);
}

void run_out_of_memory() {
  Engine& e = Engine::get();
  Var v = e.new_var();
  for (int i = 0; i < 100; ++i) e.push([] { ++count; }, {.updates = {v}});
  e.wait_all();
  struct Large {
    char bytes[64 << 20];
    void operator()() const { ++count; }
  };
  const auto large = std::make_unique<Large>();
  limit_memory(32 << 20);
  const uint64_t pushed = e.stats().pushed;
  expect(until_out_of_memory([&] { e.push(*large, {.updates = {v}}); }) == 0,
         "a large function found memory");
  expect(e.stats().pushed == pushed, "a failed push was queued");
  for (int i = 0; i < 100; ++i) e.push([] { ++count; }, {.updates = {v}});
  e.wait_all();
  expect(count == 200, "the engine was not usable");
  // Creates operations, then variables, until there is no memory for more.
  e.pause();
  const int queued = until_out_of_memory([&] { e.push([] { ++count; }, {.updates = {v}}); });
  expect(queued > 1000, "few operations found memory");
  until_out_of_memory([&] { e.new_var(); });
  limit_memory(0);
  e.resume();
  e.wait_all();
  expect(count == 200 + queued, "an operation was lost");
  e.delete_var(v);
}

// The address space has room for only some of 64 threads.
void run_with_few_threads() {
  // While the C library makes the heap arena of a thread, it maps twice its size for a moment. Another thread
  // that starts in that moment would find no room.
  mallopt(M_ARENA_MAX, 1);
  limit_memory(200 << 20);
  EngineOptions options = EngineOptions::from_environment();
  options.threads = 64;
  Engine e(options);
  std::atomic<int> ran{0};
  for (int i = 0; i < 1000; ++i) e.push([&] { ++ran; });
  for (int i = 0; i < 64; ++i) {
    e.push([&] {
      std::this_thread::yield();
      ++ran;
    });
  }
  e.wait_all();
  expect(ran == 1064, "an operation was lost");
}

}  // namespace

int main(int, char** argv) {
  const std::string what = argv[1];
  if (what == "static object") {
    use_default_engine();
    return 0;
  }
  if (what == "exit from a thread") {
    use_default_engine();
    std::thread([] { std::exit(0); }).join();
  }
  if (what == "segment") {
    static Segment segment;
    Engine& e = Engine::get();
    static Var v = e.new_var();
    segment = e.record([&] { e.push([] { ++count; }, {.updates = {v}}); });
    segment.replay();
    return 0;
  }
  if (what == "asynchronous work") {
    static test::Hold hold;
    Engine& e = Engine::get();
    e.push_async(hold.operation(), {});
    std::thread([] { hold.release(); }).detach();
    return 0;
  }
  if (what == "engine on the heap") {
    auto* e = new Engine;  // never deleted
    static Engine* keep = e;
    Var v = keep->new_var();
    for (int i = 0; i < 1000; ++i) keep->push([] { ++count; }, {.updates = {v}});
    keep->wait(v);
    return 0;
  }
  if (what == "exit inside an operation") {
    Engine& e = Engine::get();
    static Engine of_its_own;
    Var v = e.new_var();
    e.push([] { std::exit(3); }, {.updates = {v}});
    e.push([] { std::puts("an operation began after exit()"); }, {.updates = {v}});
    e.wait_all();
    return 0;
  }
  if (what == "exit inside an operation of another engine") {
    Engine::get().push([] { ++count; });
    static Engine e;
    e.push([] { std::exit(3); });
    e.wait_all();
    return 0;
  }
  if (what == "few threads") {
    run_with_few_threads();
    return 0;
  }
  if (what == "no threads") {
    limit_memory(4 << 20);  // too little for the stack of one thread
    try {
      Engine e({.threads = 64});
    } catch (const OutOfMemory&) {
      return 0;
    }
    return Engine::get().options().mode == EngineMode::naive ? 0 : 1;
  }
  if (what == "out of memory") {
    run_out_of_memory();
    return 0;
  }
  if (what == "forked child") {
    use_default_engine();
    Engine::get().wait_all();
    const pid_t child = test::fork_at_rest();
    if (child == 0) {
      is_forked_child = true;
      std::exit(7);  // runs all destructors of the program
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 7 ? 0 : 1;
  }
  return 2;
}
