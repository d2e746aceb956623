#include "tests/comm/rendezvous/conformance.h"

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/deadline.h"
#include "engine/base/error.h"

namespace mx::comm {

std::string rendezvous_name(const ::testing::TestParamInfo<RendezvousCase>& info) { return info.param.name; }

void RendezvousConformance::SetUp() {
  connect_ = GetParam().make();
  if (!connect_) GTEST_SKIP() << "the test runs in another process";
}

void RendezvousConformance::TearDown() { GetParam().end(); }

namespace {

/// Collects what a watch reports.
class Collected {
 public:
  Rendezvous::Changed changed() {
    return [this](std::string_view key, std::string_view value) {
      const std::lock_guard lock(mutex_);
      calls_[std::string(key)].push_back(std::string(value));
      ++count_;
      changed_.notify_all();
    };
  }
  bool wait_for_count(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [&] { return count_ >= count; });
  }
  std::map<std::string, std::vector<std::string>> calls() {
    const std::lock_guard lock(mutex_);
    return calls_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::vector<std::string>> calls_;
  size_t count_ = 0;
};

}  // namespace

TEST_P(RendezvousConformance, AnEntryIsReadByEverybody) {
  const auto a = connect_(), b = connect_();
  const std::string value("any\0bytes\n\xff", 11);
  a->put("0/key", value);
  EXPECT_EQ(a->get("0/key", Deadline::after_ms(60000)), value);
  EXPECT_EQ(b->get("0/key", Deadline::after_ms(60000)), value);
}

TEST_P(RendezvousConformance, AnExistingEntryIsReadAfterTheDeadline) {
  const auto a = connect_();
  a->put("key", "");
  EXPECT_EQ(a->get("key", Deadline::after_ms(0)), "");
}

TEST_P(RendezvousConformance, AMissingEntryIsATimeoutThatNamesTheKey) {
  const auto a = connect_();
  try {
    a->get("0/never written", Deadline::after_ms(20));
    FAIL() << "no entry was written";
  } catch (const Timeout& e) {
    EXPECT_NE(std::string(e.what()).find("0/never written"), std::string::npos) << e.what();
  }
  a->put("0/never written", "now");  // the request that ended is not answered
  EXPECT_EQ(a->get("0/never written", Deadline::after_ms(60000)), "now");
}

TEST_P(RendezvousConformance, AReaderWaitsForAnEntry) {
  const auto a = connect_(), b = connect_();
  std::vector<std::thread> readers;
  std::atomic<int> right{0};
  for (int i = 0; i < 4; ++i)
    readers.emplace_back(
        [&, i] { right += (i % 2 ? a : b)->get("0/late", Deadline::after_ms(60000)) == "value"; });
  std::this_thread::yield();
  a->put("0/late", "value");
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(right, 4);
}

TEST_P(RendezvousConformance, AKeyIsWrittenOnce) {
  const auto a = connect_(), b = connect_();
  a->put("key", "1");
  EXPECT_NO_THROW(b->put("key", "1"));
  try {
    b->put("key", "2");
    FAIL() << "another value was accepted";
  } catch (const InvalidState& e) {
    EXPECT_NE(std::string(e.what()).find("'key'"), std::string::npos) << e.what();
  }
  EXPECT_EQ(a->get("key", Deadline::after_ms(60000)), "1");
}

TEST_P(RendezvousConformance, ALateWatchGetsTheEntriesInTheOrderOfWriting) {
  const auto a = connect_(), b = connect_();
  std::vector<std::string> written;
  for (const int number : {5, 1, 9, 3, 12, 2}) {
    written.push_back("lost/" + std::to_string(number));
    a->put(written.back(), "");
  }
  std::mutex mutex;
  std::vector<std::string> seen;
  const uint64_t of_seen = b->watch("lost/", [&](std::string_view key, std::string_view) {
    const std::lock_guard lock(mutex);
    seen.emplace_back(key);
  });
  Collected last;
  const uint64_t of_last = b->watch("last", last.changed());
  b->put("last", "");
  ASSERT_TRUE(last.wait_for_count(1));
  for (const uint64_t id : {of_seen, of_last}) b->unwatch(id);
  const std::lock_guard lock(mutex);
  EXPECT_EQ(seen, written);
}

TEST_P(RendezvousConformance, WhatIsToldReachesTheWatchesOfThatTimeAndIsNotKept) {
  const auto a = connect_(), b = connect_();
  Collected of_a, of_b, later;
  const uint64_t watch_a = a->watch("talk/", of_a.changed());
  const uint64_t watch_b = b->watch("talk/", of_b.changed());
  // The watches exist when an entry has come through them.
  a->put("talk/begin", "");
  ASSERT_TRUE(of_a.wait_for_count(1) && of_b.wait_for_count(1));
  for (const char* word : {"one", "two", "two"}) a->tell("talk/word", word);
  a->tell("other", "not for them");
  ASSERT_TRUE(of_a.wait_for_count(4) && of_b.wait_for_count(4));
  const std::vector<std::string> words{"one", "two", "two"};
  EXPECT_EQ(of_a.calls().at("talk/word"), words);
  EXPECT_EQ(of_b.calls().at("talk/word"), words);
  EXPECT_EQ(of_b.calls().size(), 2u);

  EXPECT_THROW(b->get("talk/word", Deadline::after_ms(20)), Timeout);
  const uint64_t watch_later = b->watch("talk/", later.changed());
  b->put("talk/word", "written");  // nothing that was told takes the key
  ASSERT_TRUE(later.wait_for_count(2));
  EXPECT_EQ(later.calls().at("talk/word"), std::vector<std::string>{"written"});
  EXPECT_THROW(b->tell("", "no key"), InvalidArgument);
  a->unwatch(watch_a);
  for (const uint64_t id : {watch_b, watch_later}) b->unwatch(id);
}

TEST_P(RendezvousConformance, OfManyWritersOfAKeyOneWins) {
  std::vector<std::shared_ptr<Rendezvous>> tables;
  for (int i = 0; i < 6; ++i) tables.push_back(connect_());
  std::atomic<int> winners{0};
  std::vector<std::thread> writers;
  for (int i = 0; i < 6; ++i)
    writers.emplace_back([&, i] {
      try {
        tables[static_cast<size_t>(i)]->put("leader", std::to_string(i));
        ++winners;
      } catch (const InvalidState&) {
      }
    });
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(winners, 1);
}

TEST_P(RendezvousConformance, SizesBeyondTheLimitsAreRefused) {
  const auto a = connect_();
  const std::string longest_key(Rendezvous::kLongestKey, 'k'), longest(Rendezvous::kLongestValue, 'v');
  EXPECT_THROW(a->put("", "value"), InvalidArgument);
  EXPECT_THROW(a->put(longest_key + "k", "value"), InvalidArgument);
  EXPECT_THROW(a->put("key", longest + "v"), InvalidArgument);
  EXPECT_THROW(a->get(longest_key + "k", Deadline::after_ms(0)), InvalidArgument);
  a->put(longest_key, longest);
  EXPECT_EQ(a->get(longest_key, Deadline::after_ms(60000)), longest);
}

TEST_P(RendezvousConformance, AWatchReportsEveryEntryOnce) {
  const auto a = connect_(), b = connect_();
  a->put("0/x/0", "present");
  a->put("0/y/0", "other");
  Collected collected;
  const uint64_t id = b->watch("0/x/", collected.changed());
  for (int i = 1; i < 50; ++i) {
    a->put("0/x/" + std::to_string(i), std::to_string(i));
    a->put("0/y/" + std::to_string(i), "other");
    a->put("0/x/" + std::to_string(i), std::to_string(i));  // again: nothing changes
  }
  ASSERT_TRUE(collected.wait_for_count(50));
  b->unwatch(id);
  const auto calls = collected.calls();
  ASSERT_EQ(calls.size(), 50u);
  for (const auto& [key, values] : calls) {
    EXPECT_EQ(key.rfind("0/x/", 0), 0u) << key;
    EXPECT_EQ(values.size(), 1u) << key;
  }
  EXPECT_EQ(calls.at("0/x/0").front(), "present");
  EXPECT_EQ(calls.at("0/x/49").front(), "49");
}

TEST_P(RendezvousConformance, NothingIsReportedAfterUnwatch) {
  const auto a = connect_(), b = connect_();
  for (int round = 0; round < 20; ++round) {
    const std::string prefix = std::to_string(round) + "/";
    auto alive = std::make_unique<std::atomic<int>>(0);  // a late callback would use freed memory
    const uint64_t id = b->watch(prefix, [&alive](std::string_view, std::string_view) { ++*alive; });
    std::thread writer([&] {
      for (int i = 0; i < 10; ++i) a->put(prefix + std::to_string(i), "value");
    });
    b->unwatch(id);
    alive.reset();
    writer.join();
  }
}

TEST_P(RendezvousConformance, TwoWatchesOfOnePrefixBothReport) {
  const auto a = connect_();
  Collected one, two;
  const uint64_t first = a->watch("p", one.changed()), second = a->watch("p", two.changed());
  a->put("pq", "value");
  EXPECT_TRUE(one.wait_for_count(1));
  EXPECT_TRUE(two.wait_for_count(1));
  a->unwatch(first);
  a->put("pr", "value");
  EXPECT_TRUE(two.wait_for_count(2));
  EXPECT_EQ(one.calls().size(), 1u);
  a->unwatch(second);
}

TEST_P(RendezvousConformance, EntriesOfEpochsAreApart) {
  const auto a = connect_(), b = connect_();
  a->put(epoch_key(1, "address"), "first");
  EXPECT_THROW(b->get(epoch_key(2, "address"), Deadline::after_ms(0)), Timeout);
  Collected second;
  const uint64_t id = b->watch(epoch_key(2, ""), second.changed());
  b->put(epoch_key(2, "address"), "second");
  a->put(epoch_key(12, "address"), "another number");
  a->put(epoch_key(2, "end"), "");
  ASSERT_TRUE(second.wait_for_count(2));
  b->unwatch(id);
  EXPECT_EQ(second.calls(),
            (std::map<std::string, std::vector<std::string>>{{"2/address", {"second"}}, {"2/end", {""}}}));
  EXPECT_EQ(b->get(epoch_key(1, "address"), Deadline::after_ms(60000)), "first");
}

TEST_P(RendezvousConformance, ManyThreadsShareAConnection) {
  const auto a = connect_();
  constexpr int kThreads = 4, kEntries = 50;
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEntries; ++i) {
        const auto key = [i](int of) { return "shared/" + std::to_string(of) + "/" + std::to_string(i); };
        a->put(key(t), std::to_string(t * 1000 + i));
        const int other = (t + 1) % kThreads;
        right += a->get(key(other), Deadline::after_ms(60000)) == std::to_string(other * 1000 + i);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, kThreads * kEntries);
}

}  // namespace mx::comm
