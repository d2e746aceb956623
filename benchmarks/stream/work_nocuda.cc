#include "benchmarks/stream/work.h"

namespace mx::bench {

std::unique_ptr<Work> make_cuda_work(size_t) { return nullptr; }

}  // namespace mx::bench
