// A program whose arrays outlive main. ndarray's exit test runs it.
#include <cstdio>
#include <cstdlib>

#include "ndarray/ndarray.h"

namespace {

// Constructed before the engine, so destroyed after the engine has drained.
struct Outlives {
  mx::NDArray small, large, device, copied, pending;
  ~Outlives() {
    if (!small.defined()) return;
    if (small.data<float>()[0] != 2.f) std::abort();
    if (large.data<float>()[99999] != 3.f) std::abort();
    std::puts("outlived");
  }
} outlives;

}  // namespace

int main() {
  outlives.small = mx::full({3}, 2.f);
  outlives.large = mx::full({100000}, 2.f);
  outlives.device = mx::full({100000}, 2.f, mx::f32, mx::virt(0));
  outlives.copied = outlives.device.to(mx::cpu());
  outlives.pending = mx::empty({100000});
  outlives.large.fill_(3.f);
  outlives.pending.copy_from(outlives.large);
  outlives.device.copy_from(outlives.pending);
  return 0;
}
