// The conformance suite with groups of threads: as the cost model chooses, with each algorithm, and with
// random pauses.
#include "tests/comm/conformance.h"
#include "comm/threads/thread_group.h"

namespace mx::comm {
namespace {

constexpr int64_t kThreadTimeoutMs = 60'000;

ConformanceCase with_algorithm(Algorithm algorithm) {
  return {to_string(algorithm), [algorithm](int ranks) {
            ThreadTransportOptions options;
            // Two ranks a host.
            for (int rank = 0; rank < ranks; ++rank)
              options.hosts.push_back("host" + std::to_string(rank / 2));
            return make_thread_group(ranks, kThreadTimeoutMs, options, algorithm);
          }};
}

ConformanceCase with_delays(uint64_t seed) {
  ConformanceCase c{"delays" + std::to_string(seed), [seed](int ranks) {
                      ThreadTransportOptions options;
                      options.delay_seed = seed;
                      return make_thread_group(ranks, kThreadTimeoutMs, options);
                    }};
  c.most_ranks = 5;
  return c;
}

INSTANTIATE_TEST_SUITE_P(
    Threads, Conformance,
    ::testing::Values(ConformanceCase{"plain",
                                      [](int ranks) { return make_thread_group(ranks, kThreadTimeoutMs); }},
                      with_delays(1), with_delays(2)),
    conformance_name);

INSTANTIATE_TEST_SUITE_P(ThreadAlgorithms, Conformance,
                         ::testing::Values(with_algorithm(Algorithm::gather),
                                           with_algorithm(Algorithm::direct), with_algorithm(Algorithm::ring),
                                           with_algorithm(Algorithm::two_level)),
                         conformance_name);

}  // namespace
}  // namespace mx::comm
