// The conformance suite: many calls at once, mismatches, failures and ends.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include "engine/base/error.h"
#include "tests/comm/conformance.h"
#include "tests/comm/rank_processes.h"
#include "tests/support/forking.h"

namespace mx::comm {

namespace {

using FailureBytes = std::vector<unsigned char>;

// A time limit that passes in a test.
constexpr int64_t kShortTimeoutMs = 300;

// Waits for a number of callbacks and keeps their errors.
class Callbacks {
 public:
  std::function<void(std::exception_ptr)> expect() {
    std::lock_guard lock(mutex_);
    ++expected_;
    return [this](std::exception_ptr error) {
      std::lock_guard inner(mutex_);
      errors_.push_back(std::move(error));
      ended_.notify_all();
    };
  }
  std::vector<std::exception_ptr> wait() {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return errors_.size() == expected_; });
    return errors_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  size_t expected_ = 0;
  std::vector<std::exception_ptr> errors_;
};

Request allreduce_request(const float* in, float* out, size_t count,
                          std::function<void(std::exception_ptr)> done) {
  Request request;
  request.collective = Collective::allreduce;
  request.in = in;
  request.out = out;
  request.count = count;
  request.done = std::move(done);
  return request;
}

std::exception_ptr call_error(const std::function<void()>& call) {
  try {
    call();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

CallOptions named(const std::string& what, int64_t timeout_ms = 0) {
  CallOptions options;
  options.what = what;
  options.timeout_ms = timeout_ms;
  return options;
}

}  // namespace

TEST_P(Conformance, ManyCallsInARow) {
  for (const int ranks : sizes({2, 3, 4})) {
    const auto group = make(ranks);
    expect_ranks(group, [&](int rank, Communicator& member) {
      for (int i = 0; i < 300; ++i) {
        const size_t count = static_cast<size_t>(i % 7 == 0 ? 3000 : i % 5);
        std::vector<int32_t> values(count, rank + i);
        member.allreduce(values.data(), values.data(), count, Type::i32);
        for (const int32_t value : values) ASSERT_EQ(value, ranks * i + ranks * (ranks - 1) / 2);
      }
    });
  }
}

TEST_P(Conformance, MixedCallsInARow) {
  for (const int ranks : sizes({2, 5})) {
    if (ranks > GetParam().most_ranks) continue;
    const auto group = make(ranks);
    expect_ranks(group, [&](int rank, Communicator& member) {
      const size_t n = static_cast<size_t>(ranks);
      for (int i = 0; i < 30; ++i) {
        std::vector<int64_t> blocks(n), other(n);
        for (size_t r = 0; r < n; ++r) blocks[r] = rank * 100 + static_cast<int64_t>(r);
        member.all_to_all(blocks.data(), other.data(), 1, Type::i64);
        for (size_t r = 0; r < n; ++r) ASSERT_EQ(other[r], static_cast<int64_t>(r) * 100 + rank);
        int64_t value = rank == i % ranks ? i : -1;
        member.broadcast(&value, &value, 1, Type::i64, i % ranks);
        ASSERT_EQ(value, i);
        member.allgather(&blocks[static_cast<size_t>(rank)], other.data(), n, Type::i64);
        for (size_t r = 0; r < n; ++r) ASSERT_EQ(other[r], static_cast<int64_t>(r) * 101);
        if (rank == 0) member.send(&i, 1, Type::i32, ranks - 1);
        int got = -1;
        if (rank == ranks - 1) {
          member.receive(&got, 1, Type::i32, 0);
          ASSERT_EQ(got, i);
        }
        member.barrier();
      }
    });
  }
}

TEST_P(Conformance, AsynchronousCallsRunInOrder) {
  if (sizes({3}).empty()) return;
  const auto group = make(3);
  constexpr size_t kCalls = 100;
  expect_ranks(group, [&](int rank, Communicator& member) {
    std::vector<std::vector<float>> buffers(kCalls);
    std::vector<size_t> order;  // callbacks come one after the other
    Callbacks callbacks;
    for (size_t i = 0; i < kCalls; ++i) {
      buffers[i].assign(1 + i * 13 % 700, static_cast<float>(rank) + static_cast<float>(i));
      const auto done = callbacks.expect();
      member.start(allreduce_request(buffers[i].data(), buffers[i].data(), buffers[i].size(),
                                     [&order, i, done](std::exception_ptr error) {
                                       order.push_back(i);
                                       done(std::move(error));
                                     }));
    }
    for (const auto& error : callbacks.wait()) EXPECT_EQ(error, nullptr) << error_text(error);
    ASSERT_EQ(order.size(), kCalls);
    for (size_t i = 0; i < kCalls; ++i) {
      EXPECT_EQ(order[i], i);
      for (const float value : buffers[i]) ASSERT_EQ(value, 3.f + 3.f * static_cast<float>(i));
    }
  });
}

TEST_P(Conformance, SeveralThreadsMayCall) {
  // With equal calls, it does not matter which thread's call comes first on which rank.
  if (sizes({2}).empty()) return;
  const auto group = make(2);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (const auto& member : group)
    for (int t = 0; t < (member ? 3 : 0); ++t)
      threads.emplace_back([&, t] {
        for (int i = 0; i < 100; ++i) {
          float value = 1;
          if (t == 0) {
            Callbacks callbacks;
            member->start(allreduce_request(&value, &value, 1, callbacks.expect()));
            wrong += callbacks.wait()[0] != nullptr;
          } else {
            wrong += call_error([&] { member->allreduce(&value, &value, 1, Type::f32); }) != nullptr;
          }
          wrong += value != 2.f;
        }
      });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST_P(Conformance, WrongRequestsThrowAndHarmNothing) {
  if (sizes({2}).empty()) return;
  const auto group = make(2);
  expect_ranks(group, [&](int rank, Communicator& member) {
    float value = 1;
    EXPECT_THROW(member.broadcast(&value, &value, 1, Type::f32, 2), InvalidArgument);
    EXPECT_THROW(member.broadcast(&value, &value, 1, Type::f32, -1), InvalidArgument);
    EXPECT_THROW(member.send(&value, 1, Type::f32, rank), InvalidArgument);
    EXPECT_THROW(member.allreduce(nullptr, &value, 1, Type::f32), InvalidArgument);
    EXPECT_THROW(member.allreduce(&value, &value, 1, Type::f32, {.timeout_ms = -1}), InvalidArgument);
    EXPECT_THROW(member.allreduce(&value, nullptr, 1, Type::f32), InvalidArgument);
    EXPECT_THROW(member.allreduce(&value, &value, SIZE_MAX / 2, Type::f32), InvalidArgument);
    // Numbers that are no members of the enumerations.
    EXPECT_THROW(member.allreduce(&value, &value, 1, static_cast<Type>(kTypes)), InvalidArgument);
    CallOptions options;
    options.reduction = static_cast<Reduction>(3);
    EXPECT_THROW(member.allreduce(&value, &value, 1, Type::f32, options), InvalidArgument);
    options = {};
    options.order = static_cast<Order>(2);
    EXPECT_THROW(member.allreduce(&value, &value, 1, Type::f32, options), InvalidArgument);
    Request unknown;
    unknown.collective = static_cast<Collective>(8);
    EXPECT_THROW(member.run(unknown), InvalidArgument);
    EXPECT_EQ(member.failure(), nullptr);
    member.allreduce(&value, &value, 1, Type::f32);
    EXPECT_EQ(value, 2.f);
  });
}

// Every rank makes the call of its number; rank 1 makes another one than the others.
void expect_mismatch(Conformance& test, int ranks, const std::string& first, const std::string& second,
                     const std::function<void(Communicator&, bool other)>& call) {
  if (!test.GetParam().compares_calls) GTEST_SKIP() << "this communicator does not compare calls";
  if (!test.ends(ranks)) return;
  const auto group = test.make(ranks);
  const auto errors = run_ranks(group, [&](int rank, Communicator& member) { call(member, rank == 1); });
  for (size_t r = 0; r < errors.size(); ++r) {
    if (group[r] == nullptr) continue;
    const std::string text = error_text(errors[r]);
    EXPECT_TRUE(is_error<ProtocolError>(errors[r])) << "rank " << r << ": " << text;
    EXPECT_NE(text.find(first), std::string::npos) << text;
    EXPECT_NE(text.find(second), std::string::npos) << text;
    EXPECT_EQ(group[r]->failure(), errors[r]);
    EXPECT_EQ(call_error([&] { group[r]->barrier(); }), errors[r]) << "later calls fail with the same error";
  }
}

TEST_P(Conformance, MismatchedCountsAreFoundBeforeDataMoves) {
  for (const int ranks : {2, 4})
    for (const size_t count : {size_t{10}, size_t{100'000}})
      expect_mismatch(*this, ranks, std::to_string(count) + " x f32 'w'",
                      std::to_string(count + 1) + " x f32 'w'", [&](Communicator& member, bool other) {
                        std::vector<float> in(count + 1, 1.f), out(count + 1, -7.f);
                        try {
                          member.allreduce(in.data(), out.data(), other ? count + 1 : count, Type::f32,
                                           named("w"));
                        } catch (...) {
                          EXPECT_EQ(out, std::vector<float>(count + 1, -7.f));
                          throw;
                        }
                      });
}

TEST_P(Conformance, MismatchedTypesAreFound) {
  expect_mismatch(*this, 3, "10 x f32", "10 x i32", [&](Communicator& member, bool other) {
    std::vector<float> values(10);
    member.allreduce(values.data(), values.data(), 10, other ? Type::i32 : Type::f32);
  });
}

TEST_P(Conformance, MismatchedNamesAreFound) {
  expect_mismatch(*this, 3, "'fc1.weight'", "'fc1.bias'", [&](Communicator& member, bool other) {
    std::vector<float> values(10);
    member.allreduce(values.data(), values.data(), 10, Type::f32, named(other ? "fc1.bias" : "fc1.weight"));
  });
}

TEST_P(Conformance, MismatchedCollectivesAreFound) {
  for (const int ranks : {2, 5}) {
    if (ranks > GetParam().most_ranks) continue;
    expect_mismatch(*this, ranks, "allreduce", "barrier", [&](Communicator& member, bool other) {
      std::vector<float> values(10);
      if (other)
        member.barrier();
      else
        member.allreduce(values.data(), values.data(), 10, Type::f32);
    });
    expect_mismatch(*this, ranks, "barrier", "all_to_all", [&](Communicator& member, bool other) {
      std::vector<float> values(10);
      if (other)
        member.all_to_all(values.data(), values.data(), 1, Type::f32);
      else
        member.barrier();
    });
  }
}

TEST_P(Conformance, MismatchedRootsAreFound) {
  expect_mismatch(*this, 2, "from rank 0", "from rank 1", [&](Communicator& member, bool other) {
    float value = 1;
    member.broadcast(&value, &value, 1, Type::f32, other ? 1 : 0);
  });
}

TEST_P(Conformance, MismatchedSendAndReceiveAreFound) {
  for (const size_t count : {size_t{10}, size_t{100'000}})
    expect_mismatch(*this, 2, "send of " + std::to_string(count), "receive of " + std::to_string(count + 2),
                    [&](Communicator& member, bool other) {
                      std::vector<float> values(count + 2);
                      if (other)
                        member.receive(values.data(), count + 2, Type::f32, 0);
                      else
                        member.send(values.data(), count, Type::f32, 1);
                    });
}

TEST_P(Conformance, AMessageAndACollectiveAreAMismatch) {
  for (const bool message_first : {false, true}) {
    const auto wait_if = [](bool second) {
      if (second) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    };
    expect_mismatch(*this, 2, "send of 10", "barrier", [&](Communicator& member, bool other) {
      std::vector<float> values(10);
      wait_if(other == message_first);
      if (other)
        member.barrier();
      else
        member.send(values.data(), 10, Type::f32, 1);
    });
    expect_mismatch(*this, 2, "receive of 10", "allreduce of 5", [&](Communicator& member, bool other) {
      std::vector<float> values(10);
      wait_if(other == message_first);
      if (other)
        member.allreduce(values.data(), values.data(), 5, Type::f32);
      else
        member.receive(values.data(), 10, Type::f32, 1);
    });
  }
}

TEST_P(Conformance, AMismatchOfTwoRanksEndsTheCallsOfTheOthers) {
  if (!GetParam().compares_calls || !GetParam().notices_peers) GTEST_SKIP();
  if (!ends(3)) return;
  const auto group = make(3);
  const auto errors = run_ranks(group, [](int rank, Communicator& member) {
    std::vector<float> values(10);
    if (rank == 0)
      member.send(values.data(), 10, Type::f32, 1);
    else
      member.barrier();
  });
  for (size_t r = 0; r < errors.size(); ++r)
    EXPECT_TRUE(group[r] == nullptr || is_error<ProtocolError>(errors[r]) || is_error<PeerLost>(errors[r]))
        << "rank " << r << ": " << error_text(errors[r]);
}

TEST_P(Conformance, DeadlineNamesTheMissingRanksAndTheCall) {
  for (const size_t count : {size_t{4}, size_t{100'000}}) {
    if (!ends(3)) continue;
    const auto group = make(3);
    std::vector<float> values(count);
    const auto error = run_ranks(group, [&](int rank, Communicator& member) {
      if (rank > 0) return;
      member.allreduce(values.data(), values.data(), count, Type::f32, named("fc1.weight", kShortTimeoutMs));
    })[0];
    if (group[0] == nullptr) continue;
    const std::string text = error_text(error);
    EXPECT_TRUE(is_error<Timeout>(error)) << text;
    EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
    EXPECT_NE(text.find("rank 2"), std::string::npos) << text;
    EXPECT_NE(text.find(group[0]->host(1)), std::string::npos) << text;
    EXPECT_NE(text.find("fc1.weight"), std::string::npos) << text;
    EXPECT_EQ(group[0]->failure(), error);
    EXPECT_EQ(call_error([&] { group[0]->barrier(); }), error) << "later calls fail with the same error";
  }
}

TEST_P(Conformance, DeadlineNamesOnlyTheMissingRanks) {
  if (!ends(4)) return;
  const auto group = make(4);
  // Rank 2 does not come.
  std::vector<std::exception_ptr> errors = run_ranks(group, [&](int rank, Communicator& member) {
    std::vector<float> values(16);
    member.barrier();  // so that the others begin at nearly the same time
    if (rank != 2) member.allreduce(values.data(), values.data(), 16, Type::f32, named("w", 2000));
  });
  for (const size_t r : {size_t{0}, size_t{1}, size_t{3}}) {
    if (group[r] == nullptr) continue;
    const std::string text = error_text(errors[r]);
    EXPECT_TRUE(is_error<Timeout>(errors[r]) || is_error<PeerLost>(errors[r])) << text;
    if (is_error<Timeout>(errors[r])) {
      EXPECT_NE(text.find("rank 2"), std::string::npos) << text;
      for (const size_t other : {size_t{0}, size_t{1}, size_t{3}})
        EXPECT_TRUE(other == r || text.find("rank " + std::to_string(other)) == std::string::npos) << text;
    }
  }
}

TEST_P(Conformance, ALimitThatIsSetWhileTheCallRunsEndsItAndNamesTheMissingRank) {
  if (!ends(2)) return;
  const auto group = make(2);
  const auto errors = run_ranks(group, [&](int rank, Communicator& member) {
    if (rank == 1) return;  // makes no call
    const auto limit = std::make_shared<DeferredLimit>();
    float value = 1;
    Callbacks callbacks;
    Request request = allreduce_request(&value, &value, 1, callbacks.expect());
    request.options = named("fc1.weight", kLongestTimeoutMs);
    request.deferred_limit = limit;
    member.start(std::move(request));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // most likely, the call blocks by now
    EXPECT_EQ(member.failure(), nullptr);
    limit->set(kShortTimeoutMs);
    std::rethrow_exception(callbacks.wait()[0]);
  });
  if (group[0] == nullptr) return;
  const std::string text = error_text(errors[0]);
  EXPECT_TRUE(is_error<Timeout>(errors[0])) << text;
  EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
  EXPECT_NE(text.find("fc1.weight"), std::string::npos) << text;
}

TEST_P(Conformance, ALimitThatIsNeverSetChangesNothing) {
  if (sizes({2}).empty()) return;
  const auto group = make(2);
  expect_ranks(group, [](int, Communicator& member) {
    float value = 1;
    Request request = allreduce_request(&value, &value, 1, nullptr);
    request.deferred_limit = std::make_shared<DeferredLimit>();
    member.run(std::move(request));
    EXPECT_EQ(value, 2.f);
  });
}

TEST_P(Conformance, AbortEndsTheRunningCallAndLaterOnes) {
  for (const bool asynchronous : {false, true}) {
    if (!ends(2)) continue;
    const auto group = make(2);
    run_ranks(group, [&](int rank, Communicator& member) {
      if (rank != (asynchronous ? 1 : 0)) return;  // makes no call
      std::vector<float> values(100'000);
      Callbacks callbacks;
      std::exception_ptr error;
      std::thread caller;
      if (asynchronous)
        for (int i = 0; i < 3; ++i)
          member.start(allreduce_request(values.data(), values.data(), values.size(), callbacks.expect()));
      else
        caller = std::thread([&] {
          error =
              call_error([&] { member.allreduce(values.data(), values.data(), values.size(), Type::f32); });
        });
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // most likely, the call blocks by now
      const auto reason = std::make_exception_ptr(Cancelled("the test says so"));
      member.abort(reason);
      member.abort(std::make_exception_ptr(Cancelled("too late")));
      if (asynchronous) {
        for (const auto& e : callbacks.wait()) EXPECT_EQ(e, reason) << error_text(e);
      } else {
        caller.join();
        EXPECT_EQ(error, reason) << error_text(error);
      }
      EXPECT_EQ(member.failure(), reason);
      EXPECT_EQ(call_error([&] { member.barrier(); }), reason);
      member.start(allreduce_request(values.data(), values.data(), 1, callbacks.expect()));
      EXPECT_EQ(callbacks.wait().back(), reason);
    });
  }
}

TEST_P(Conformance, AbortWithoutAReasonIsRefused) {
  if (sizes({2}).empty()) return;
  const auto group = make(2);
  EXPECT_THROW(any_rank(group).abort(nullptr), InvalidArgument);
  expect_ranks(group, [](int, Communicator& member) { member.barrier(); });
}

TEST_P(Conformance, AForkedChildCanOnlyDestroyItsCopy) {
  if (sizes({2}).empty()) return;
  auto group = make(2);
  Callbacks callbacks;  // each rank has a thread, which the child lacks
  std::vector<float> values(2, 1.f);
  for (size_t r = 0; r < 2; ++r)
    if (group[r] != nullptr)
      group[r]->start(allreduce_request(&values[r], &values[r], 1, callbacks.expect()));
  for (const auto& error : callbacks.wait()) EXPECT_EQ(error, nullptr) << error_text(error);
  const std::string end = test::run_in_child([&] {
    int wrong = 0;
    const std::function<void(Communicator&)> calls[] = {
        [](Communicator& member) { member.barrier(named("child", kShortTimeoutMs)); },
        [](Communicator& member) { member.start(allreduce_request(nullptr, nullptr, 0, [](auto) {})); },
        [](Communicator& member) { member.allocate(1000); },
        [](Communicator& member) { member.abort(std::make_exception_ptr(Cancelled("child"))); },
        [](Communicator& member) { std::rethrow_exception(member.failure()); },
    };
    for (size_t i = 0; i < std::size(calls); ++i)
      for (const auto& member : group)
        if (member != nullptr && !is_error<InvalidState>(call_error([&] { calls[i](*member); })))
          wrong |= 1 << i;
    group.clear();
    return wrong;
  });
  EXPECT_EQ(end, "exit code 0") << "a bit of the code is set for each call that was not refused";
  expect_ranks(group, [](int, Communicator& member) {
    const std::shared_ptr<void> memory = member.allocate(1000 * sizeof(float));
    float* const mine = static_cast<float*>(memory.get());
    std::fill_n(mine, 1000, 1.f);
    member.allreduce(mine, mine, 1000, Type::f32);
    EXPECT_EQ(std::vector<float>(mine, mine + 1000), std::vector<float>(1000, 2.f));
  });
}

TEST_P(Conformance, TooMuchMemoryIsAnErrorThatHarmsNothing) {
  if (sizes({2}).empty()) return;
  const auto group = make(2);
  expect_ranks(group, [](int, Communicator& member) {
    for (const size_t bytes : {size_t{1} << 62, ~size_t{0}})
      EXPECT_THROW(member.allocate(bytes), OutOfMemory);
    EXPECT_NE(member.allocate(0), nullptr);
    member.barrier();
  });
}

TEST_P(Conformance, ARankThatIsGoneIsNamed) {
  if (!GetParam().notices_peers) GTEST_SKIP() << "this communicator does not notice ranks that are gone";
  if (!ends(3)) return;
  auto group = make(3);
  group[2].reset();
  const auto errors = run_ranks(group, [&](int, Communicator& member) {
    std::vector<float> values(16);
    member.allreduce(values.data(), values.data(), 16, Type::f32, named("fc1.weight"));
  });
  for (size_t r = 0; r < 2; ++r) {
    if (group[r] == nullptr) continue;
    const std::string text = error_text(errors[r]);
    EXPECT_TRUE(is_error<PeerLost>(errors[r])) << text;
    EXPECT_NE(text.find("rank 2"), std::string::npos) << text;
    EXPECT_NE(text.find("fc1.weight"), std::string::npos) << text;
  }
}

TEST_P(Conformance, QueuedCallsRunBeforeTheEnd) {
  constexpr size_t kCalls = 40;
  if (sizes({3}).empty()) return;
  auto group = make(3);
  std::vector<std::vector<float>> values(3, std::vector<float>(kCalls * 2000, 1.f));
  std::vector<Callbacks> callbacks(3);
  for (size_t r = 0; r < 3; ++r)
    for (size_t i = 0; i < (group[r] ? kCalls : 0); ++i) {
      float* const at = values[r].data() + i * 2000;
      group[r]->start(allreduce_request(at, at, 2000, callbacks[r].expect()));
    }
  std::vector<bool> here;
  for (const auto& member : group) here.push_back(member != nullptr);
  std::vector<std::thread> threads;
  for (auto& member : group) threads.emplace_back([&] { member.reset(); });
  for (auto& thread : threads) thread.join();
  for (size_t r = 0; r < 3; ++r) {
    if (!here[r]) continue;
    for (const auto& error : callbacks[r].wait()) EXPECT_EQ(error, nullptr) << error_text(error);
    EXPECT_EQ(values[r], std::vector<float>(kCalls * 2000, 3.f));
  }
}

TEST_P(Conformance, CallbacksMayStartCallsAndHoldTheLastReference) {
  if (sizes({2}).empty()) return;
  auto group = make(2);
  std::vector<float> first(2, 1.f), second(2, 2.f);
  Callbacks callbacks;
  std::vector<float> first_expected(2, 1.f), second_expected(2, 2.f);
  for (size_t r = 0; r < 2; ++r) {
    if (group[r] == nullptr) continue;
    first_expected[r] = 2.f;
    second_expected[r] = 4.f;
    const auto last = callbacks.expect();
    const std::shared_ptr<Communicator> member = std::move(group[r]);
    Communicator& called = *member;
    called.start(allreduce_request(&first[r], &first[r], 1, [&, r, last, member](std::exception_ptr error) {
      EXPECT_EQ(error, nullptr) << error_text(error);
      member->start(
          allreduce_request(&second[r], &second[r], 1, [last, member](std::exception_ptr e) { last(e); }));
    }));
  }
  for (const auto& error : callbacks.wait()) EXPECT_EQ(error, nullptr) << error_text(error);
  EXPECT_EQ(first, first_expected);
  EXPECT_EQ(second, second_expected);
}

TEST_P(Conformance, GroupsOfOneWork) {
  if (sizes({1}).empty()) return;
  const auto group = make(1);
  std::vector<float> in{1, 2, 3}, out(3);
  group[0]->allreduce(in.data(), out.data(), 3, Type::f32);
  EXPECT_EQ(out, in);
  out.assign(3, 0);
  group[0]->allgather(in.data(), out.data(), 3, Type::f32);
  EXPECT_EQ(out, in);
  group[0]->barrier();
}

TEST_P(Conformance, AllocatedMemoryIsReducedToo) {
  for (const int ranks : sizes({2, 3})) {
    const auto group = make(ranks);
    expect_ranks(group, [&](int rank, Communicator& member) {
      const size_t count = 50'000;
      const std::shared_ptr<void> memory = member.allocate(count * sizeof(float));
      const std::shared_ptr<void> more = member.allocate(count * sizeof(float));
      float *const in = static_cast<float*>(memory.get()), *const out = static_cast<float*>(more.get());
      EXPECT_EQ(reinterpret_cast<uintptr_t>(in) % 64, 0u);
      for (int round = 1; round <= 3; ++round) {
        for (size_t i = 0; i < count; ++i) in[i] = static_cast<float>((rank + 1) * round);
        member.allreduce(in, out, count, Type::f32);
        const float sum = static_cast<float>(ranks * (ranks + 1) / 2 * round);
        for (size_t i = 0; i < count; ++i) ASSERT_EQ(out[i], sum);
        member.allreduce(in, in, count, Type::f32);
        for (size_t i = 0; i < count; ++i) ASSERT_EQ(in[i], sum);
      }
    });
  }
}

}  // namespace mx::comm
