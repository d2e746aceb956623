#include "benchmarks/stream/work.h"

namespace mx::bench {

std::unique_ptr<Work> make_cuda_work(size_t) { return nullptr; }
double bare_launch_ns(int, size_t, bool) { return 0; }

}  // namespace mx::bench
