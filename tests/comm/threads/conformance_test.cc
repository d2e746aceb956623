// The conformance suite with groups of threads: as the cost model chooses, and with random pauses.
#include "tests/comm/conformance.h"
#include "comm/threads/thread_group.h"

namespace mx::comm {
namespace {

ConformanceCase with_delays(uint64_t seed) {
  ConformanceCase c{"delays" + std::to_string(seed), [seed](int ranks) {
                      ThreadTransportOptions options;
                      options.delay_seed = seed;
                      return make_thread_group(ranks, 60'000, options);
                    }};
  c.most_ranks = 4;
  return c;
}

const ConformanceCase kPlain{
    .name = "plain", .make = [](int ranks) { return make_thread_group(ranks); }, .adds_megabytes = true};

INSTANTIATE_TEST_SUITE_P(Threads, Conformance, ::testing::Values(kPlain, with_delays(1), with_delays(2)),
                         conformance_name);

}  // namespace
}  // namespace mx::comm
