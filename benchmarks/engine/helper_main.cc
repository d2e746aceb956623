// The main function of a helper program, which only runs measurements for engine_bench. So a peer that needs
// another compiler or runtime (Clang's OpenMP) can be built separately.
#include "benchmarks/engine/child.h"
#include "benchmarks/support/report.h"

int main(int argc, char** argv) {
  if (mx::bench::is_child(argc, argv)) return mx::bench::child_main(argc, argv);
  mx::bench::note("this program is started by engine_bench");
  return 2;
}
