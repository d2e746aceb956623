// Two operations write one variable without declaring it, at the same time. Under ThreadSanitizer this must
// be reported: what cmake/tsan.supp leaves out of oneTBB must not hide what operations do.
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
