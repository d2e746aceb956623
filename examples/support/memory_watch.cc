#include "examples/support/memory_watch.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>

namespace mx::examples {
namespace {

constexpr int64_t kEarlySteps = 100;  // after these, memory should not grow any more

/// The resident memory of this process in MB; 0 if the system does not tell.
double resident_memory_mb() {
  std::ifstream file("/proc/self/statm");
  double total = 0, resident = 0;
  if (!(file >> total >> resident)) return 0;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1024 * 1024);
}

}  // namespace

void MemoryWatch::step(const NDArray& loss) {
  NDArray& earlier = losses_[static_cast<size_t>(steps_) % kAhead];
  if (earlier.defined()) earlier.wait();
  earlier = loss;
  if (++steps_ == kEarlySteps) early_mb_ = resident_memory_mb();
}

std::string MemoryWatch::text() const {
  if (steps_ <= kEarlySteps) return {};
  std::array<char, 128> text{};
  std::snprintf(text.data(), text.size(), "memory %.0f MB after %lld steps, %.0f MB at the end", early_mb_,
                static_cast<long long>(kEarlySteps), resident_memory_mb());
  return text.data();
}

}  // namespace mx::examples
