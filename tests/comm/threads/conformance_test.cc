// The conformance suite with groups of threads: as the cost model chooses, and with random pauses.
#include "tests/comm/conformance.h"

#include <exception>
#include <string>

#include "comm/threads/thread_group.h"
#include "engine/base/error.h"

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

// The message behind the header of another call may have another size than the one that is expected. Which of
// the two a rank sees first depends on the threads, so there are many rounds.
TEST(ThreadGroups, CallsThatDifferAreNamedWhateverArrivesFirst) {
  for (int round = 0; round < 3000; ++round) {
    const auto errors = run_ranks(make_thread_group(2), [](int rank, Communicator& group) {
      unsigned char bytes[32] = {};
      if (rank == 0) group.allreduce(bytes, bytes, 2, Type::f32, {.what = "sum"});
      if (rank == 1) group.allgather(bytes + 16, bytes, 32, Type::u8, {.what = "records"});
    });
    for (const std::exception_ptr& error : errors) {
      ASSERT_TRUE(is_error<ProtocolError>(error)) << error_text(error);
      ASSERT_NE(error_text(error).find("'sum'"), std::string::npos) << error_text(error);
      ASSERT_NE(error_text(error).find("'records'"), std::string::npos) << error_text(error);
    }
  }
}

}  // namespace
}  // namespace mx::comm
