// A rendezvous whose process runs out of memory: it loses the connection that needs the memory, and goes on.
//
// This file replaces the operators new and delete of its test program.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <future>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>

#include "comm/net/socket.h"
#include "comm/rendezvous/client.h"
#include "comm/rendezvous/protocol.h"
#include "comm/rendezvous/server.h"
#include "engine/base/error.h"

namespace {

std::atomic<size_t> first_refused{SIZE_MAX};
thread_local bool is_spared = false;  // the thread of the test

// Other threads than that of the test get no pieces of so many bytes.
class NoMemory {
 public:
  explicit NoMemory(size_t bytes) {
    is_spared = true;
    first_refused = bytes;
  }
  ~NoMemory() { first_refused = SIZE_MAX; }
};

}  // namespace

[[gnu::noinline]] void* operator new(size_t bytes) {
  if (bytes >= first_refused.load(std::memory_order_relaxed) && !is_spared) throw std::bad_alloc();
  void* const memory = std::malloc(bytes > 0 ? bytes : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace mx::comm {
namespace {

Deadline memory_patience() { return Deadline::after_ms(60000); }

Identity memory_identity(int32_t rank) { return {"digits", "a secret", 0, rank, kRendezvousPurpose}; }

std::unique_ptr<RendezvousClient> connect_frugal(const RendezvousServer& server, int32_t rank) {
  RendezvousClientOptions options;
  options.address = server.address();
  options.self = memory_identity(rank);
  options.host = "n";
  options.dead_after_ms = 60000;
  return std::make_unique<RendezvousClient>(options, memory_patience());
}

// Joins as rank 7, and then sends these bytes, whatever the server does.
Stream join_and_say(const RendezvousServer& server, const std::string& bytes) {
  Stream socket = connect_to(parse_endpoint(server.address()), memory_patience());
  handshake_on(socket, Handshake::Side::connector, memory_identity(7), memory_patience(), "server");
  const std::string all = encode({FrameKind::join, 1, 0, "worker", "raw"}) + bytes;
  try {
    send_all(socket, std::as_bytes(std::span(all)), memory_patience());
  } catch (const PeerLost&) {  // it was disconnected in the middle
  }
  return socket;
}

void expect_to_serve(const RendezvousServer& server, RendezvousClient& good, int64_t step) {
  good.put("0/later" + std::to_string(step), "value");
  EXPECT_EQ(connect_frugal(server, 1)->get("0/later" + std::to_string(step), memory_patience()), "value");
}

TEST(RendezvousMemory, AClientWhoseMessageHasNoRoomIsLost) {
  const RendezvousServer server({.self = memory_identity(-1)});
  const auto good = connect_frugal(server, 0);
  const NoMemory none(50'000);
  Stream socket = join_and_say(
      server, encode({FrameKind::put, 2, 0, "0/large", std::string(Rendezvous::kLongestValue, 'v')}));
  const std::string lost = good->get("0/lost/worker7", memory_patience());
  EXPECT_NE(lost.find("the rendezvous failed"), std::string::npos) << lost;
  expect_to_serve(server, *good, 1);
}

TEST(RendezvousMemory, AClientWhoseAnswersHaveNoRoomIsLost) {
  const RendezvousServer server({.self = memory_identity(-1)});
  const auto good = connect_frugal(server, 0);
  good->put("0/large", std::string(Rendezvous::kLongestValue, 'v'));
  std::string requests;
  for (uint64_t i = 0; i < 1000; ++i) encode({FrameKind::get, 10 + i, 0, "0/large", ""}, requests);
  const NoMemory none(2 << 20);
  Stream socket = join_and_say(server, requests);
  const std::string lost = good->get("0/lost/worker7", memory_patience());
  EXPECT_NE(lost.find("no memory"), std::string::npos) << lost;
  expect_to_serve(server, *good, 2);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they map memory of their own
// The first loss must not end a process that has no room for the stack of another thread.
TEST(RendezvousMemory, TheFirstEventOfAWatchNeedsNoNewThread) {
  const RendezvousServer server({.self = memory_identity(-1)});
  const auto client = connect_frugal(server, 0), writer = connect_frugal(server, 1);
  std::promise<void> seen;
  client->watch("0/news/", [&](std::string_view, std::string_view) { seen.set_value(); });
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  rlimit little = before;
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  little.rlim_cur = pages * static_cast<size_t>(sysconf(_SC_PAGESIZE)) + (1 << 20);
  ASSERT_EQ(setrlimit(RLIMIT_AS, &little), 0);
  writer->put("0/news/first", "value");
  const bool told = seen.get_future().wait_for(std::chrono::seconds(60)) == std::future_status::ready;
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_TRUE(told);
}
#endif

}  // namespace
}  // namespace mx::comm
