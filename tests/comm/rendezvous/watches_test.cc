#include "comm/rendezvous/watches.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "engine/base/log.h"

namespace mx::comm {
namespace {

TEST(Watches, ACallbackMayRemoveItsWatchWhileTheyStop) {
  Watches watches;
  std::promise<void> entered, stopping;
  watches.add(1, "a", [&](std::string_view, std::string_view) {
    entered.set_value();
    stopping.get_future().wait();
    watches.remove(1);  // would wait for its own end
  });
  watches.post_matching("a/key", "value");
  entered.get_future().wait();
  std::thread stopper([&] { watches.stop(); });
  // Most likely, stop() waits for the callback by now. Otherwise the test passes without having tested it.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  stopping.set_value();
  stopper.join();
}

// Calls the watches when a callback that has captured it is destroyed.
std::shared_ptr<void> calls_at_its_end(Watches& watches, std::atomic<int>& ended) {
  return {nullptr, [&watches, &ended](void*) {
            watches.remove(99);
            ++ended;
          }};
}

TEST(Watches, WhatACallbackHasCapturedMayCallThemInItsDestructor) {
  std::atomic<int> ended{0};
  Watches watches;
  std::promise<void> entered, go;
  watches.add(1, "a", [&](std::string_view, std::string_view) {
    entered.set_value();
    go.get_future().wait();
  });
  watches.add(2, "b", [held = calls_at_its_end(watches, ended)](std::string_view, std::string_view) {});
  watches.add(3, "c", [held = calls_at_its_end(watches, ended)](std::string_view, std::string_view) {});
  watches.post_matching("a/key", "value");
  entered.get_future().wait();
  watches.post_matching("b/key", "value");  // stays queued
  watches.post([held = calls_at_its_end(watches, ended)] {});
  watches.remove(2);
  EXPECT_EQ(ended.load(), 1) << "its queued call is gone, too";
  watches.remove(3);
  EXPECT_EQ(ended.load(), 2);
  go.set_value();
  watches.stop();
  EXPECT_EQ(ended.load(), 3);
  watches.post([held = calls_at_its_end(watches, ended)] {});
  EXPECT_EQ(ended.load(), 4) << "after stop() nothing is queued";
}

TEST(Watches, ACallbackMayThrowAnything) {
  Watches watches;
  std::promise<void> later;
  set_log_sink([](LogLevel, const std::string&) {});
  watches.post([] { throw 7; });
  watches.post([&] { later.set_value(); });
  later.get_future().wait();
  watches.stop();
  set_log_sink({});
}

}  // namespace
}  // namespace mx::comm
