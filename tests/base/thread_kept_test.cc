#include "engine/base/thread_kept.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace mx::detail {
namespace {

struct Counted {
  static inline std::atomic<int> alive{0};
  int value = 0;
  Counted() { ++alive; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ~Counted() { --alive; }
};

TEST(ThreadKept, EachThreadHasOneUntilItEnds) {
  struct Tag;
  const int before = Counted::alive;
  thread_kept<Counted, Tag>().value = 1;
  std::thread([&] {
    EXPECT_EQ(0, (thread_kept<Counted, Tag>().value));
    thread_kept<Counted, Tag>().value = 2;
    EXPECT_EQ(2, (thread_kept<Counted, Tag>().value));
    EXPECT_EQ(before + 2, Counted::alive);
  }).join();
  EXPECT_EQ(1, (thread_kept<Counted, Tag>().value));
  EXPECT_EQ(before + 1, Counted::alive);
}

TEST(ThreadKept, TagsTellApart) {
  struct One;
  struct Two;
  std::thread([] {
    thread_kept<Counted, One>().value = 1;
    EXPECT_EQ(0, (thread_kept<Counted, Two>().value));
  }).join();
}

// This object is constructed before the first use, so it is destroyed after any thread_local object that
// keeps memory.
TEST(ThreadKept, ServesTheDestructorsOfTheThreadAndGoesAfterThem) {
  struct Tag;
  struct Late {
    int* seen = nullptr;
    ~Late() {
      if (seen != nullptr) *seen = thread_kept<Counted, Tag>().value;
    }
  };
  const int before = Counted::alive;
  int seen = 0;
  std::thread([&] {
    static thread_local Late late;
    late.seen = &seen;
    thread_kept<Counted, Tag>().value = 7;
  }).join();
  EXPECT_EQ(7, seen);
  EXPECT_EQ(before, Counted::alive);
}

struct First;
struct Second;
struct AsksLate {
  bool asks = false;
  ~AsksLate() {
    if (asks) thread_kept<Counted, Second>().value = 1;
  }
};

TEST(ThreadKept, WhatIsAskedForWhileThingsGoGoesToo) {
  const int before = Counted::alive;
  std::thread([] { thread_kept<AsksLate, First>().asks = true; }).join();
  EXPECT_EQ(before, Counted::alive);
}

}  // namespace
}  // namespace mx::detail
