// The comparison of calls ahead of a library that compares nothing: the conformance suite, with the library
// replaced by a stand-in, and what concerns the comparison alone.
#include "comm/call_comparison.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/threads/thread_transport.h"
#include "engine/base/error.h"
#include "tests/comm/conformance.h"
#include "tests/comm/threads/library_group.h"

namespace mx::comm {
namespace {

using testing::make_library_group;
using testing::mixed_calls;

ConformanceCase with_library() {
  ConformanceCase c{"library", [](int ranks) { return make_library_group(ranks, true); }};
  c.most_ranks = 5;
  c.size_scale = 0.2;
  return c;
}

INSTANTIATE_TEST_SUITE_P(Compared, Conformance, ::testing::Values(with_library()), conformance_name);

// Calls each rank's body on a thread of its own, and returns what each has thrown.
std::vector<std::exception_ptr> compare_on_threads(int ranks,
                                                   const std::function<void(int, CallComparison&)>& body) {
  std::vector<std::exception_ptr> errors(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  int rank = 0;
  for (auto& messages : make_thread_transports(ranks)) {
    threads.emplace_back([&body, &error = errors[static_cast<size_t>(rank)], rank,
                          held = std::shared_ptr<Transport>(std::move(messages))] {
      CallComparison comparison(held);
      try {
        body(rank, comparison);
      } catch (...) {
        error = std::current_exception();
      }
    });
    ++rank;
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

Request sum_of(size_t count) {
  Request request;
  request.collective = Collective::allreduce;
  request.count = count;
  request.options.what = "w";
  return request;
}

Deadline in_a_minute() { return Deadline::after_ms(60'000); }

// The test of the test: the stand-in does not notice that the ranks make different calls.
TEST(CallComparison, WithoutItDifferentCallsGoThrough) {
  const int before = mixed_calls();
  expect_ranks(make_library_group(2, false), [](int rank, Communicator& member) {
    std::vector<float> values(10, 1.f);
    member.allreduce(values.data(), values.data(), rank == 0 ? 9 : 10, Type::f32);
  });
  EXPECT_EQ(mixed_calls(), before + 1);
}

TEST(CallComparison, NoDataOfDifferentCallsMoves) {
  const int before = mixed_calls();
  for (int wrong = 0; wrong < 3; ++wrong)
    for (int right_calls = 0; right_calls < 3; ++right_calls) {
      const auto errors = run_ranks(make_library_group(3, true), [&](int rank, Communicator& member) {
        std::vector<float> values(10, 1.f);
        for (int i = 0; i < right_calls; ++i) member.allreduce(values.data(), values.data(), 10, Type::f32);
        member.allreduce(values.data(), values.data(), rank == wrong ? 9 : 10, Type::f32);
      });
      for (const auto& error : errors) {
        EXPECT_TRUE(is_error<ProtocolError>(error)) << error_text(error);
        EXPECT_NE(error_text(error).find("call " + std::to_string(right_calls + 1)), std::string::npos)
            << error_text(error);
      }
    }
  EXPECT_EQ(mixed_calls(), before);
}

// Beyond kMostDirect ranks, descriptions are passed on from rank to rank.
TEST(CallComparison, ManyRanksLearnOfOneThatMakesAnotherCall) {
  for (const int ranks : {CallComparison::kMostDirect, CallComparison::kMostDirect + 1, 23})
    for (const int wrong : {-1, 0, 7, ranks - 1}) {
      const auto errors = compare_on_threads(ranks, [&](int rank, CallComparison& comparison) {
        comparison.compare(sum_of(10), in_a_minute());
        comparison.compare(sum_of(rank == wrong ? 11 : 10), in_a_minute());
      });
      for (const auto& error : errors) {
        EXPECT_EQ(error == nullptr, wrong < 0) << error_text(error);
        EXPECT_TRUE(error == nullptr || is_error<ProtocolError>(error) || is_error<PeerLost>(error))
            << error_text(error);
      }
    }
}

TEST(CallComparison, AFailureOfTheLibraryIsToldWithTheNextCall) {
  const auto errors = compare_on_threads(3, [&](int rank, CallComparison& comparison) {
    comparison.compare(sum_of(10), in_a_minute());
    if (rank == 1) {
      comparison.fail(sum_of(10), std::make_exception_ptr(DeviceError("the device is broken")));
      EXPECT_THROW(comparison.compare(sum_of(10), in_a_minute()), DeviceError)
          << "later calls of the rank fail, too";
      return;
    }
    comparison.compare(sum_of(10), in_a_minute());
  });
  EXPECT_EQ(errors[1], nullptr) << error_text(errors[1]);
  for (const size_t rank : {size_t{0}, size_t{2}}) {
    EXPECT_TRUE(is_error<ProtocolError>(errors[rank])) << error_text(errors[rank]);
    EXPECT_NE(error_text(errors[rank]).find("the device is broken"), std::string::npos)
        << error_text(errors[rank]);
  }
}

}  // namespace
}  // namespace mx::comm
