#include "comm/rendezvous/watches.h"

#include <gtest/gtest.h>

#include <future>
#include <string_view>
#include <thread>

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

}  // namespace
}  // namespace mx::comm
