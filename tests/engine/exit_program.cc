// A program that ends in the middle of things; what it does is its argument. exit_test runs it.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "engine/engine.h"
#include "tests/support/held.h"

namespace {

using namespace mx;

int count = 0;

// Made before the engine, destroyed after it has drained.
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
  if (what == "forked child") {
    use_default_engine();
    Engine::get().wait_all();
    const pid_t child = fork();
    if (child == 0) std::exit(7);  // with all its destructors
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 7 ? 0 : 1;
  }
  return 2;
}
