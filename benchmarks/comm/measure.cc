#include <algorithm>
#include <stdexcept>

#include "benchmarks/comm/allreduce.h"
#include "benchmarks/support/clock.h"

namespace mx::bench {

std::string allreduce_case(size_t bytes) {
  return "allreduce_" + (bytes < (size_t{1} << 20) ? std::to_string(bytes >> 10) + "KB"
                                                   : std::to_string(bytes >> 20) + "MB");
}

std::vector<double> measure_allreduce(AllreduceRank& rank, int ranks, size_t bytes, bool adds, int rounds,
                                      int fewer_calls) {
  const size_t count = bytes / sizeof(float);
  float* const values = rank.allocate(count);
  std::fill_n(values, count, 1.0f);
  rank.barrier();
  rank.allreduce(values, count);
  const auto sum = static_cast<float>(ranks);
  if (adds && (values[0] != sum || values[count / 2] != sum || values[count - 1] != sum))
    throw std::runtime_error("wrong sum: " + std::to_string(values[0]) + " instead of " +
                             std::to_string(sum));
  const int calls = bytes <= 4096 ? 2000 : bytes <= 262'144 ? 200 : bytes <= 4'194'304 ? 10 : 2;
  const int inner = std::max(2, calls / fewer_calls);
  std::vector<double> samples;
  for (int round = 0; round <= rounds; ++round) {
    std::fill_n(values, count, 0.0f);
    rank.barrier();
    const int64_t start = now_ns();
    for (int i = 0; i < inner; ++i) rank.allreduce(values, count);
    const auto elapsed = static_cast<double>(now_ns() - start);
    if (round > 0) samples.push_back(elapsed / inner / 1000);
  }
  return samples;
}

}  // namespace mx::bench
