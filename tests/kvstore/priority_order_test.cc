// Stores whose calls start by priority, over several transports: random programs give the bits of the order
// of the program, and programs that differ or fail end with errors.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/threads/thread_group.h"
#include "comm/transport_communicator.h"
#include "engine/base/annotations.h"
#include "engine/base/error.h"
#include "kvstore/dist_allreduce.h"
#include "operators/operators.h"
#include "tests/comm/tcp/tcp_pairs.h"
#include "tests/kvstore/noting_communicator.h"
#include "tests/kvstore/rank_threads.h"
#include "tests/kvstore/rank_values.h"
#include "tests/kvstore/shm_threads.h"
#include "tests/support/errors.h"
#include "tests/support/held.h"

namespace mx {
namespace {

using comm::Collective;
using test::contains;
using test::error_of;
using test::expect_no_errors;
using test::NotedCall;
using test::NotingCommunicator;
using test::on_group;
using Members = std::vector<std::shared_ptr<comm::Communicator>>;
using Names = std::vector<std::string>;

Members group_of(const std::string& transport, int ranks) {
  if (transport == "threads") return comm::make_thread_group(ranks, 60000);
  if (transport == "tcp") {
    Members group;
    for (auto& member : test::tcp_group(ranks, {}))
      group.push_back(std::make_shared<comm::TransportCommunicator>(std::move(member), 60000));
    return group;
  }
  return test::make_shm_threads(ranks);
}

/// A group whose members note their calls.
struct Noted {
  explicit Noted(const Members& below) {
    for (const auto& member : below) {
      notes.push_back(std::make_shared<NotingCommunicator>(member));
      members.push_back(notes.back());
    }
  }
  std::vector<std::shared_ptr<NotingCommunicator>> notes;
  Members members;
};

/// Waits until all calls have been made whose values are ready: the engine has one thread.
void after_the_calls() {
  std::promise<void> ran;
  current_engine().push([&] { ran.set_value(); },
                        {.priority = -32768, .name = "after the calls", .lane = StreamKind::comm});
  ran.get_future().wait();
}

/// The calls of a random program. All ranks make the same ones, but their values become ready in other
/// orders. About half of the programs are gated: no call starts before the values of all are ready.
class RandomProgram {
 public:
  static constexpr int kCalls = 12;
  /// `ready` counts the ranks whose values are ready. In the second round, the value of call `failing` fails
  /// on rank `failing_rank`; -1: of none.
  RandomProgram(unsigned seed, std::atomic<int>& ready, int failing, int failing_rank)
      : seed_(seed), ready_(ready), failing_(failing), failing_rank_(failing_rank) {}

  /// Runs on one rank. Returns the values, as bytes, or the texts of errors.
  std::vector<std::string> run(KVStore& kv) {
    std::mt19937 own(seed_ * 31 + static_cast<unsigned>(kv.rank()));
    rank_ = kv.rank();
    kv.init("stored", rank_value(7));
    std::vector<std::string> texts;
    // The first round compares the keys, and no call overtakes such a comparison.
    for (const bool second : {false, true}) {
      results_.clear();
      holds_.clear();
      make_all(kv, own, second);
      for (const NDArray& result : results_) texts.push_back(text_of(result));
    }
    return texts;
  }

 private:
  void make_all(KVStore& kv, std::mt19937& own, bool second) {
    std::mt19937 same(seed_);
    const bool gated = same() % 2 == 0 && second, ranks_differ = same() % 2 == 0;
    NDArray gate = zeros({1});
    test::Hold gate_held;
    if (gated) {
      if (rank_ == kv.size() - 1)
        current_engine().push_async(gate_held.operation(), {.updates = {gate.var()}, .name = "held"});
      kv.push_barrier(gate);
    }
    for (int call = 0; call < kCalls; ++call) {
      const unsigned kind = same() % 8;
      const auto size = 1 + static_cast<int64_t>(same() % 300);
      KVOptions options{.priority = static_cast<int>(same() % 7) - 3};
      if (ranks_differ) options.priority = static_cast<int>(own() % 7) - 3;
      make(kv, kind, call, size, second && call == failing_ && rank_ == failing_rank_, options);
      if (own() % 3 == 0) holds_[own() % holds_.size()].release();
      // A rank may wait for what it has asked for, whether the others do or not.
      if (!gated && own() % 12 == 0) {
        for (test::Hold& hold : holds_) hold.release();
        text_of(results_.back());
      }
    }
    std::shuffle(holds_.begin(), holds_.end(), own);
    for (test::Hold& hold : holds_) hold.release();
    if (!gated) return;
    after_the_calls();
    ++ready_;
    while (ready_ < kv.size()) std::this_thread::yield();
    gate_held.release();
  }

  NDArray rank_value(int64_t size) const { return test::rank_value(rank_, size, seed_); }
  /// Returns a value that is ready when its hold is released.
  NDArray held(NDArray value, bool fails = false) {
    test::Hold& hold = holds_.emplace_back();
    current_engine().push_async(hold.operation(), {.updates = {value.var()}, .name = "held"});
    if (fails)
      current_engine().push([] { throw std::runtime_error("lost batch"); },
                            {.updates = {value.var()}, .name = "bad"});
    return value;
  }

  void make(KVStore& kv, unsigned kind, int call, int64_t size, bool fails, const KVOptions& options) {
    const std::string key = "call " + std::to_string(call);
    NDArray value = held(rank_value(size), fails);
    switch (kind) {
      case 0: {
        kv.push("stored", held(rank_value(7)), options);
        kv.pull("stored", value = zeros({7}), options);
        break;
      }
      case 1:
        kv.broadcast_from_first({key}, {value}, options);
        break;
      case 2:
        kv.sum_slices(key, value, options);
        kv.gather_slices(key + " again", value, options);
        break;
      case 3:
        kv.push_barrier(value, options);
        break;
      case 4: {
        NDArray other = held(rank_value(size + 3));
        kv.allreduce({key, key + " more"}, {value, other}, {value, other}, options);
        results_.push_back(other);
        break;
      }
      case 5: {
        NDArray token = zeros({1}), equal = held(ones({size}));
        kv.check_equal({key}, {equal}, token, options);
        results_.push_back(token);
        break;
      }
      default:
        kv.allreduce({key}, {value}, {value}, options);
    }
    results_.push_back(value);
  }

  static std::string text_of(const NDArray& result) {
    try {
      const std::vector<float> values = result.to_vector<float>();
      return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
    } catch (const Error& e) {
      return std::string("error: ") + e.what();
    }
  }

  const unsigned seed_;
  std::atomic<int>& ready_;
  const int failing_, failing_rank_;
  int rank_ = 0;
  std::vector<NDArray> results_;
  std::vector<test::Hold> holds_;
};

/// What the ranks of a program got, and the calls that they made between them.
struct Outcome {
  std::vector<std::vector<std::string>> results;
  std::vector<std::vector<NotedCall>> calls;
};

Outcome outcome_of(const Members& members, KVStoreOptions options, unsigned seed, int failing = -1,
                   int failing_rank = 0) {
  const Noted group(members);
  Outcome outcome;
  outcome.results.resize(members.size());
  std::atomic<int> ready{0};
  expect_no_errors(on_group(
      group.members,
      [&](KVStore& kv) {
        RandomProgram program(seed, ready, failing, failing_rank);
        outcome.results[static_cast<size_t>(kv.rank())] = program.run(kv);
      },
      options));
  for (const auto& member : group.notes) outcome.calls.push_back(member->take_all());
  return outcome;
}

Names names_of_sums(const std::vector<NotedCall>& calls) {
  Names names;
  for (const NotedCall& call : calls)
    if (call.collective == Collective::allreduce) names.push_back(call.what);
  return names;
}

#ifdef MX_TSAN
constexpr unsigned kPrograms = 4;
#else
constexpr unsigned kPrograms = 15;
#endif

class PriorityOrder : public ::testing::TestWithParam<const char*> {};

TEST_P(PriorityOrder, RandomProgramsGiveTheBitsOfTheOrderOfTheProgram) {
  int other_order = 0;
  for (unsigned seed = 1; seed <= kPrograms; ++seed) {
    const int ranks = 2 + static_cast<int>(seed % 4);
    // Messages of one key, several messages for a key, and a credit of one byte, which changes nothing.
    KVStoreOptions options{.fuse_bytes = seed % 3 == 0 ? 0 : 4 << 20,
                           .cut_bytes = seed % 2 == 0 ? 256 : 4 << 20,
                           .bytes_in_flight = seed % 5 == 0 ? 1 : 16 << 20};
    const Outcome expected = outcome_of(group_of("threads", ranks), options, seed);
    options.order = KVOrder::priority;
    const Outcome got = outcome_of(group_of(GetParam(), ranks), options, seed);
    EXPECT_TRUE(expected.results == got.results) << "seed " << seed;
    for (const auto& calls : got.calls) EXPECT_TRUE(got.calls[0] == calls) << "seed " << seed;
    other_order += names_of_sums(expected.calls[0]) != names_of_sums(got.calls[0]);
  }
  EXPECT_GT(other_order, 0);
}

TEST_P(PriorityOrder, AValueThatFailsInTheMiddleEndsTheCallsOfAllRanks) {
  int lost = 0;
  for (unsigned seed = 100; seed < 100 + kPrograms; ++seed) {
    const int ranks = 2 + static_cast<int>(seed % 3),
              failing = static_cast<int>(seed) % RandomProgram::kCalls;
    const Outcome expected = outcome_of(group_of("threads", ranks), {}, seed);
    const Outcome got = outcome_of(group_of(GetParam(), ranks), {.order = KVOrder::priority}, seed, failing,
                                   static_cast<int>(seed) % ranks);
    for (size_t r = 0; r < got.results.size(); ++r) {
      bool failed = false;
      for (size_t i = 0; i < got.results[r].size(); ++i) {
        if (got.results[r][i] == expected.results[r][i]) continue;
        EXPECT_TRUE(got.results[r][i].starts_with("error: ")) << "seed " << seed << ", rank " << r;
        EXPECT_TRUE(contains(got.results[r][i], "lost batch")) << got.results[r][i];
        failed = true;
      }
      lost += failed;
    }
  }
  EXPECT_GT(lost, 0);
}

TEST_P(PriorityOrder, OfCallsThatAreReadyOnAllRanksTheMostUrgentStartsFirst) {
  const Noted group(group_of(GetParam(), 3));
  std::atomic<int> ready{0};
  expect_no_errors(
      on_group(group.members,
               [&](KVStore& kv) {
                 NDArray gate = zeros({1});
                 std::vector<NDArray> layers(6);
                 for (NDArray& layer : layers) layer = ones({2});
                 const auto sum_layers = [&] {
                   // As a backward pass does: the last layer first.
                   for (size_t i = layers.size(); i-- > 0;)
                     kv.allreduce({"layer " + std::to_string(i)}, {layers[i]}, {layers[i]},
                                  {.priority = -static_cast<int>(i)});
                 };
                 sum_layers();  // compares the keys
                 for (const NDArray& layer : layers) layer.wait();
                 group.notes[static_cast<size_t>(kv.rank())]->take_all();
                 // No sum starts before all ranks have passed the gate, which rank 1 holds until all sums are
                 // ready.
                 test::Hold held;
                 if (kv.rank() == 1)
                   current_engine().push_async(held.operation(), {.updates = {gate.var()}, .name = "held"});
                 kv.push_barrier(gate);
                 sum_layers();
                 after_the_calls();
                 ++ready;
                 while (ready < kv.size()) std::this_thread::yield();
                 held.release();
                 for (const NDArray& layer : layers)
                   EXPECT_EQ(layer.to_vector<float>(), std::vector<float>(2, 9.f));
                 Names expected;
                 for (size_t i = 0; i < layers.size(); ++i) expected.push_back("layer " + std::to_string(i));
                 EXPECT_EQ(names_of_sums(group.notes[static_cast<size_t>(kv.rank())]->take_all()), expected);
               },
               {.order = KVOrder::priority}));
}

INSTANTIATE_TEST_SUITE_P(Transports, PriorityOrder, ::testing::Values("threads", "shm", "tcp"),
                         [](const auto& transport) { return std::string(transport.param); });

// If one rank decided alone, it would start "b", which the waiting rank makes only after "a" has ended.
TEST(PriorityOrderOfPrograms, ARankMayWaitForACallThatWouldBeOvertaken) {
  for (const int waiting : {0, 1, 2}) {
    std::atomic<int> ready{0};
    expect_no_errors(test::on_ranks(
        3,
        [&](KVStore& kv) {
          NDArray gate = zeros({1}), a = ones({2}), b = ones({2});
          kv.allreduce({"a", "b"}, {a, b}, {a, b});  // compares the keys
          b.wait();
          const bool holds = kv.rank() == (waiting + 1) % 3;
          test::Hold held;
          if (holds) current_engine().push_async(held.operation(), {.updates = {gate.var()}, .name = "held"});
          kv.push_barrier(gate);
          kv.allreduce({"a"}, {a}, {a}, {.priority = 0});
          if (kv.rank() == waiting) a.wait();
          kv.allreduce({"b"}, {b}, {b}, {.priority = 9});
          if (kv.rank() != waiting) {
            after_the_calls();
            ++ready;
          }
          while (holds && ready < 2) std::this_thread::yield();
          held.release();
          EXPECT_EQ(b.to_vector<float>(), std::vector<float>(2, 9.f));
        },
        {.order = KVOrder::priority}, 20000));
  }
}

TEST(PriorityOrderOfPrograms, APushedBarrierWaitsForEarlierCallsWhateverItsPriority) {
  expect_no_errors(test::on_ranks(
      2,
      [&](KVStore& kv) {
        NDArray value = ones({2}), token = zeros({1});
        kv.allreduce({"a"}, {value}, {value});
        value.wait();
        test::Hold held;
        current_engine().push_async(held.operation(), {.updates = {value.var()}, .name = "held"});
        kv.allreduce({"a"}, {value}, {value}, {.priority = 1});
        kv.push_barrier(token, {.priority = 100});
        EXPECT_FALSE(token.wait(200)) << "the barrier has passed a call that waits for its value";
        held.release();
        token.wait();
        EXPECT_EQ(value.to_vector<float>(), std::vector<float>(2, 4.f));
      },
      {.order = KVOrder::priority}));
}

TEST(PriorityOrderOfPrograms, ACallThatAnotherRankNeverMakesIsNamed) {
  std::promise<void> over;
  const std::shared_future<void> first_is_over = over.get_future().share();
  expect_no_errors(test::on_ranks(
      2,
      [&](KVStore& kv) {
        NDArray a = ones({2}), b = ones({2});
        for (int round = 0; round < 2; ++round) {
          kv.allreduce({"a"}, {a}, {a});
          if (round == 0 || kv.rank() == 0) kv.allreduce({"b"}, {b}, {b}, {.priority = 9});
          a.wait();  // in both rounds, because nobody chooses a call that rank 1 does not make
        }
        EXPECT_EQ(a.to_vector<float>(), std::vector<float>(2, 4.f));
        if (kv.rank() == 1) return first_is_over.wait();
        const std::string message = error_of<Timeout>([&] { b.wait(); });
        EXPECT_TRUE(contains(message, "'b'") && contains(message, "rank 1 on ")) << message;
        over.set_value();
      },
      {.order = KVOrder::priority}, 300));
}

TEST(PriorityOrderOfPrograms, AChoiceThatBeganBeforeTheFirstCallWasReadyHasALimit) {
  std::promise<void> over;
  const std::shared_future<void> first_is_over = over.get_future().share();
  expect_no_errors(test::on_ranks(
      2,
      [&](KVStore& kv) {
        NDArray a = ones({2}), b = ones({2});
        kv.allreduce({"a"}, {a}, {a});
        kv.allreduce({"b"}, {b}, {b});
        a.wait(), b.wait();
        if (kv.rank() == 1) return first_is_over.wait();
        test::Hold held;
        current_engine().push_async(held.operation(), {.updates = {a.var()}, .name = "held"});
        kv.allreduce({"a"}, {a}, {a}, {.priority = 1});
        kv.allreduce({"b"}, {b}, {b}, {.priority = 2});
        after_the_calls();  // "b" has asked for a choice
        held.release();
        const std::string message = error_of<Timeout>([&] { a.wait(60000); });
        EXPECT_TRUE(contains(message, "'a'") && contains(message, "rank 1 on ")) << message;
        EXPECT_THROW(b.wait(60000), Timeout);
        over.set_value();
      },
      {.order = KVOrder::priority}, 300));
}

TEST(PriorityOrderOfPrograms, OtherCallsThanThoseOfTheOthersAreNamedOnAllRanks) {
  const auto sum = [](KVStore& kv, const std::string& key, int priority) {
    NDArray value = ones({2});
    kv.allreduce({key}, {value}, {value}, {.priority = priority});
    return value;
  };
  using Calls = std::function<void(KVStore & kv)>;
  const std::vector<std::pair<Calls, Calls>> programs = {
      {[&](KVStore& kv) { sum(kv, "a", 1).wait(); }, [](KVStore& kv) { kv.barrier(); }},
      {[&](KVStore& kv) { sum(kv, "a", 1), sum(kv, "b", 2).wait(); },
       [&](KVStore& kv) { sum(kv, "b", 2), sum(kv, "a", 1).wait(); }},
      {[&](KVStore& kv) { sum(kv, "a", 1), kv.barrier(); },
       [&](KVStore& kv) { kv.barrier(), sum(kv, "a", 1).wait(); }},
  };
  for (const auto& [first, second] : programs)
    for (const bool swapped : {false, true}) {
      std::atomic<int> errors{0};
      expect_no_errors(test::on_ranks(
          2,
          [&, &first = first, &second = second](KVStore& kv) {
            for (const char* key : {"a", "b"}) sum(kv, key, 0).wait();
            const std::string message =
                error_of<ProtocolError>([&] { ((kv.rank() == 0) != swapped ? first : second)(kv); });
            errors += contains(message, "rank 1 on ") || contains(message, "rank 0 on ");
          },
          {.order = KVOrder::priority}, 20000));
      EXPECT_EQ(2, errors.load());
    }
}

TEST(PriorityOrderOfPrograms, RanksWithAnotherOrderAreNamed) {
  const Members group = comm::make_thread_group(2, 20000);
  std::vector<std::thread> threads;
  for (size_t r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      Engine engine(EngineOptions{.threads = 1});
      const EngineScope scope(engine);
      detail::DistAllreduce store("dist_allreduce", group[r], detail::SumPlace::host,
                                  {.order = r == 0 ? KVOrder::priority : KVOrder::program});
      NDArray value = ones({2});
      store.allreduce({"w"}, {value}, {value}, {});
      const std::string message = error_of<ProtocolError>([&] { value.wait(); });
      EXPECT_TRUE(contains(message, "order = priority on rank 0; order = program on rank 1")) << message;
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace mx
