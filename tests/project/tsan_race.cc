// Two operations write one variable at the same time without declaring it. ThreadSanitizer must report this:
// the suppressions of oneTBB in cmake/tsan.supp must not hide races of operations.
#include <barrier>
#include <cstdio>

#include "engine/engine.h"

int main() {
  int shared = 0;
  std::barrier both_are_here(2);
  mx::Engine engine(mx::EngineOptions{.threads = 2});
  for (int i = 0; i < 2; ++i) {
    engine.push([&] {
      ++shared;
      both_are_here.arrive_and_wait();
    });
  }
  engine.wait_all();
  std::printf("ended without a report\n");
}
