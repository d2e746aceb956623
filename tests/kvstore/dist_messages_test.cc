// Which messages "dist_allreduce" makes of the keys of a call, how many bytes it has in flight, and which
// time limits its calls have.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/threads/thread_group.h"
#include "engine/base/error.h"
#include "kvstore/call_sequence.h"
#include "kvstore/dist_allreduce.h"
#include "operators/operators.h"
#include "tests/kvstore/keeping_communicator.h"
#include "tests/kvstore/noting_communicator.h"
#include "tests/kvstore/rank_threads.h"
#include "tests/kvstore/rank_values.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using comm::Collective;
using test::contains;
using test::error_of;
using test::expect_no_errors;
using test::KeepingCommunicator;
using test::NotedCall;
using test::NotingCommunicator;
using test::on_group;
using Bytes = std::vector<size_t>;

/// A group of threads whose members note their calls.
struct NotingGroup {
  explicit NotingGroup(int ranks, int64_t timeout_ms = 60000) {
    for (const auto& member : comm::make_thread_group(ranks, timeout_ms)) {
      notes.push_back(std::make_shared<NotingCommunicator>(member));
      members.push_back(notes.back());
    }
  }
  NotingCommunicator& of(const KVStore& kv) const { return *notes[static_cast<size_t>(kv.rank())]; }

  std::vector<std::shared_ptr<NotingCommunicator>> notes;
  std::vector<std::shared_ptr<comm::Communicator>> members;
};

Bytes sizes_of(const std::vector<NotedCall>& calls) {
  Bytes sizes;
  for (const NotedCall& call : calls) sizes.push_back(call.bytes);
  return sizes;
}

/// Adds up arrays of the given numbers of f32 elements in one call, and returns the sizes of its messages.
Bytes messages_of_sum(const NotingGroup& group, KVStore& kv, const std::vector<int64_t>& counts) {
  std::vector<KVKey> keys;
  std::vector<KVStore::Values> values;
  std::vector<NDArray> outs;
  for (const int64_t count : counts) {
    keys.emplace_back(std::to_string(keys.size()) + " of " + std::to_string(counts.size()));
    outs.push_back(full({count}, kv.rank() + 1));
    values.emplace_back(outs.back());
  }
  group.of(kv).take(Collective::barrier);
  kv.allreduce(keys, values, outs, {});
  for (size_t i = 0; i < outs.size(); ++i)
    EXPECT_EQ(outs[i].to_vector<float>(), std::vector<float>(static_cast<size_t>(counts[i]), 3.f));
  return sizes_of(group.of(kv).take(Collective::allreduce));
}

TEST(DistMessages, SmallKeysOfACallShareMessages) {
  const NotingGroup group(2);
  expect_no_errors(on_group(group.members,
                            [&](KVStore& kv) {
                              EXPECT_EQ(messages_of_sum(group, kv, {25, 25, 25, 25, 25, 25, 25, 25, 25, 25}),
                                        (Bytes{400, 400, 200}));
                              EXPECT_EQ(messages_of_sum(group, kv, {90, 20, 1, 100}), (Bytes{360, 84, 400}));
                              EXPECT_EQ(messages_of_sum(group, kv, {101}), (Bytes{404}));
                            },
                            {.fuse_bytes = 400}));
}

TEST(DistMessages, KeysOfOtherTypesDoNotShareAMessage) {
  const NotingGroup group(2);
  expect_no_errors(on_group(group.members, [&](KVStore& kv) {
    std::vector<NDArray> outs{ones({4}), ones({4}), ones({4}, f64), ones({4})};
    kv.allreduce({"a", "b", "c", "d"}, {outs[0], outs[1], outs[2], outs[3]}, outs);
    for (const NDArray& out : outs) EXPECT_EQ(out.to(f32).to_vector<float>(), std::vector<float>(4, 2.f));
    EXPECT_EQ(sizes_of(group.of(kv).take(Collective::allreduce)), (Bytes{32, 32, 16}));
  }));
}

TEST(DistMessages, LargeKeysAreCut) {
  const NotingGroup group(2);
  expect_no_errors(
      on_group(group.members,
               [&](KVStore& kv) {
                 EXPECT_EQ(messages_of_sum(group, kv, {2500}), (Bytes{4000, 4000, 2000}));
                 NDArray values = full({2500}, kv.rank() + 5);
                 kv.broadcast_from_first({"b"}, {values});
                 current_engine().wait_all();  // process 0 only reads the values
                 EXPECT_EQ(values.to_vector<float>(), std::vector<float>(2500, 5.f));
                 EXPECT_EQ(sizes_of(group.of(kv).take(Collective::broadcast)), (Bytes{4000, 4000, 2000}));
               },
               {.cut_bytes = 4000}));
}

TEST(DistMessages, MessagesHaveAboutFourMegabytes) {
  constexpr int64_t kElements = (1 << 20) / 4;  // of a megabyte
  const NotingGroup group(2);
  expect_no_errors(on_group(group.members, [&](KVStore& kv) {
    const Bytes sizes =
        messages_of_sum(group, kv, {kElements, kElements, kElements, 2 * kElements, 9 * kElements});
    EXPECT_EQ(sizes, (Bytes{3 << 20, 2 << 20, 4 << 20, 4 << 20, 1 << 20}));
  }));
}

TEST(DistMessages, TheBytesInFlightAreBounded) {
  const NotingGroup group(2);
  std::promise<void> looked;
  const std::shared_future<void> second_may_come = looked.get_future().share();
  expect_no_errors(on_group(
      group.members,
      [&](KVStore& kv) {
        std::vector<NDArray> arrays;
        for (int i = 0; i < 8; ++i) arrays.push_back(ones({250}));
        const auto sum_all = [&] {
          for (int i = 0; i < 8; ++i)
            kv.allreduce({i}, {arrays[static_cast<size_t>(i)]}, {arrays[static_cast<size_t>(i)]});
        };
        sum_all();  // compares the keys
        for (const NDArray& array : arrays) array.wait();
        group.of(kv).take(Collective::allreduce);
        if (kv.rank() == 1) second_may_come.wait();
        sum_all();
        if (kv.rank() == 0) {
          // The engine has one thread, so all calls have been made when this operation runs. None has ended.
          std::promise<void> ran;
          current_engine().push([&] { ran.set_value(); },
                                {.priority = -32768, .name = "after the calls", .lane = StreamKind::comm});
          ran.get_future().wait();
          EXPECT_EQ(sizes_of(group.of(kv).take(Collective::allreduce)), (Bytes{1000, 1000, 1000}));
          looked.set_value();
        }
        for (const NDArray& array : arrays) EXPECT_EQ(array.to_vector<float>(), std::vector<float>(250, 4.f));
      },
      {.bytes_in_flight = 3500}));
}

TEST(DistMessages, ACallStartsWhenItsBytesHaveRoom) {
  const auto group = std::make_shared<KeepingCommunicator>();
  const auto sequence = std::make_shared<detail::CallSequence>(group, 100);
  int ended = 0;
  const auto start = [&](size_t bytes) {
    sequence->take("call").start(
        {.requests = std::vector<comm::Request>(1), .bytes = bytes, .done = [&](auto) { ++ended; }});
  };
  for (const size_t bytes : {60u, 40u, 30u, 70u, 500u, 1u}) start(bytes);
  EXPECT_EQ(group->kept.size(), 2u);  // 60 + 40
  group->end_one();
  EXPECT_EQ(group->kept.size(), 2u);  // 40 + 30; 70 has no room
  group->end_one();
  EXPECT_EQ(group->kept.size(), 2u);  // 30 + 70
  group->end_one();
  EXPECT_EQ(group->kept.size(), 1u);  // 70; 500 has none, and 1 comes after it
  group->end_one();
  EXPECT_EQ(group->kept.size(), 1u);  // 500, which is alone
  group->end_one();
  EXPECT_EQ(group->kept.size(), 1u);  // 1
  group->end_one();
  EXPECT_EQ(ended, 6);
}

/// Calls with time limits of their own, by name.
std::vector<std::pair<std::string, std::function<void(KVStore&, NDArray&, const KVOptions&)>>>
limited_calls() {
  return {{"push",
           [](KVStore& kv, NDArray& array, const KVOptions& options) {
             kv.push("w", array, options);
             kv.pull("w", array, options);
           }},
          {"pushpull", [](KVStore& kv, NDArray& array,
                          const KVOptions& options) { kv.pushpull("w", array, array, options); }},
          {"allreduce", [](KVStore& kv, NDArray& array, const KVOptions& options) {
             kv.allreduce({"sum"}, {array}, {array}, options);
           }}};
}

TEST(DistMessages, ACallHasTheTimeLimitThatItWasGiven) {
  for (const auto& [name, call] : limited_calls()) {
    const NotingGroup group(2);
    expect_no_errors(on_group(
        group.members,
        [&, &call = call, &name = name](KVStore& kv) {
          NDArray array = ones({2});
          kv.init("w", array);
          for (const auto& [given, expected] : {std::pair<int64_t, int64_t>{40001, 40001}, {0, 50001}}) {
            call(kv, array, {.timeout_ms = given});
            array.wait();
            const auto calls = group.of(kv).take(Collective::allreduce);
            ASSERT_EQ(calls.size(), 1u) << name;
            EXPECT_EQ(calls[0].timeout_ms, expected) << name;
          }
        },
        {.timeout_ms = 50001}));
  }
}

TEST(DistMessages, ACallEndsAtTheTimeLimitThatItWasGiven) {
  for (const KVOrder order : {KVOrder::program, KVOrder::priority})
    for (const auto& [name, call] : limited_calls()) {
      const NotingGroup group(2, 600'000);  // longer than the limit of the test
      std::promise<void> over;
      const std::shared_future<void> first_is_over = over.get_future().share();
      expect_no_errors(on_group(group.members,
                                [&, &call = call, &name = name](KVStore& kv) {
                                  NDArray array = ones({2});
                                  kv.init("w", array);
                                  call(kv, array, {});
                                  array.wait();
                                  if (kv.rank() == 1) return first_is_over.wait();
                                  call(kv, array, {.timeout_ms = 200});
                                  const std::string message = error_of<Timeout>([&] { array.wait(); });
                                  EXPECT_TRUE(contains(message, "rank 1")) << name << ": " << message;
                                  over.set_value();
                                },
                                {.order = order}));
    }
}

}  // namespace
}  // namespace mx
