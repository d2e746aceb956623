// How ranks get their shared memory from rank 0.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/net/bytes.h"
#include "comm/net/fd.h"
#include "comm/shm/bootstrap.h"
#include "comm/shm/region.h"
#include "comm/shm/shm_communicator.h"
#include "engine/base/error.h"

namespace mx::comm {
namespace {

// A table within this process. Watches are called by the thread that writes.
class TableRendezvous final : public Rendezvous {
 public:
  void put(const std::string& key, const std::string& value) override {
    std::lock_guard lock(mutex_);
    entries_[key] = value;
    call_watches(key, value);
    changed_.notify_all();
  }
  void tell(const std::string& key, const std::string& value) override {
    std::lock_guard lock(mutex_);
    call_watches(key, value);
  }
  std::string get(const std::string& key, Deadline deadline) override {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_until(lock, deadline.at(), [&] { return entries_.count(key) > 0; }))
      throw Timeout("[get] nothing at " + key);
    return entries_[key];
  }
  uint64_t watch(const std::string& prefix, Changed changed) override {
    std::lock_guard lock(mutex_);
    for (const auto& [key, value] : entries_)
      if (key.rfind(prefix, 0) == 0) changed(key, value);
    watches_[++last_] = {prefix, std::move(changed)};
    return last_;
  }
  void unwatch(uint64_t id) override {
    std::lock_guard lock(mutex_);
    watches_.erase(id);
  }

 private:
  void call_watches(const std::string& key, const std::string& value) {
    for (const auto& [id, watch] : watches_)
      if (key.rfind(watch.first, 0) == 0) watch.second(key, value);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> entries_;
  std::map<uint64_t, std::pair<std::string, Changed>> watches_;
  uint64_t last_ = 0;
};

void join_and_add(int rank, int size, Rendezvous& table) {
  try {
    const auto group = make_shm_communicator(rank, size, table, "0/world");
    int32_t value = rank + 1;
    group->allreduce(&value, &value, 1, Type::i32);
    EXPECT_EQ(value, size * (size + 1) / 2);
    EXPECT_EQ(group->type(), "shm");
    EXPECT_EQ(group->host(0), group->host(size - 1));
  } catch (const std::exception& error) {
    ADD_FAILURE() << "rank " << rank << ": " << error.what();
  }
}

TEST(ShmBootstrap, OnlyTheUserMayOpenTheMemory) {
  const Fd memory = shm::new_shared_memory("test");
  struct stat about {};
  ASSERT_EQ(0, fstat(memory.get(), &about));
  EXPECT_EQ(0600u, about.st_mode & 07777);
}

TEST(ShmBootstrap, RanksFindEachOther) {
  TableRendezvous table;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) threads.emplace_back([&, rank] { join_and_add(rank, 4, table); });
  for (std::thread& thread : threads) thread.join();
}

// Connects to rank 0, which has published its address in this entry.
Fd connect_stranger(const std::string& entry) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  size_t length = 0;
  for (size_t at = 3; entry[at] != ' '; at += 2)
    address.sun_path[length++] = static_cast<char>(std::stoi(entry.substr(at, 2), nullptr, 16));
  Fd stranger(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(stranger.get(), reinterpret_cast<const sockaddr*>(&address),
                    static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length)),
            0);
  return stranger;
}

// Each rank is slow: it sends its token only when all are connected.
TEST(ShmBootstrap, ManySlowRanksKeepEachOtherNotOut) {
  constexpr int kRanks = 100;
  TableRendezvous table;
  shm::SharedFiles files;
  files.region = shm::new_shared_memory("test");
  std::thread first([&] {
    try {
      shm::pass_files(files, kRanks, {table, "0/world", Deadline::after_ms(60'000)});
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  });
  const std::string entry = table.get("0/world/shm", Deadline::after_ms(60'000));
  std::vector<Fd> ranks;
  for (int rank = 1; rank < kRanks; ++rank) ranks.push_back(connect_stranger(entry));
  // The last one first: when it has its answer, rank 0 knows all of them.
  for (int rank = kRanks - 1; rank > 0; --rank) {
    const int connection = ranks[static_cast<size_t>(rank - 1)].get();
    struct {
      char token[64];
      int32_t rank;
    } hello{};
    std::memcpy(hello.token, entry.data() + entry.rfind(' ') + 1, sizeof hello.token);
    hello.rank = rank;
    EXPECT_GT(send(connection, &hello, sizeof hello, MSG_NOSIGNAL), 0) << rank;
    char byte = 0;
    EXPECT_EQ(recv(connection, &byte, 1, 0), 1) << rank;
    EXPECT_EQ(send(connection, "m", 1, MSG_NOSIGNAL), 1) << rank;
  }
  first.join();
}

TEST(ShmBootstrap, SilentStrangersKeepNoRankOut) {
  TableRendezvous table;
  std::thread first([&] { join_and_add(0, 2, table); });
  const std::string entry = table.get("0/world/shm", Deadline::after_ms(60'000));
  std::vector<Fd> strangers;
  for (int i = 0; i < 100; ++i) strangers.push_back(connect_stranger(entry));
  join_and_add(1, 2, table);
  first.join();
}

// As when rank 0 is stopped: connect() would wait for ever.
TEST(ShmBootstrap, ConnectingToRankZeroHasADeadlineAndChecks) {
  TableRendezvous table;
  const Fd listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  auto* const name = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof address;
  ASSERT_EQ(bind(listener.get(), name, sizeof(sa_family_t)), 0);
  ASSERT_EQ(listen(listener.get(), 0), 0);
  ASSERT_EQ(getsockname(listener.get(), name, &length), 0);
  std::vector<Fd> waiting;
  do {
    waiting.emplace_back(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  } while (waiting.size() < 100 && connect(waiting.back().get(), name, length) == 0);
  const std::string bytes(address.sun_path, length - offsetof(sockaddr_un, sun_path));
  table.put("0/world/shm", "at " + to_hex(bytes) + " " + std::string(64, 't'));
  EXPECT_THROW(shm::take_files(1, {table, "0/world", Deadline::after_ms(100)}), Timeout);
  const auto check = [] { throw PeerLost("rank 0 is lost"); };
  EXPECT_THROW(shm::take_files(1, {table, "0/world", Deadline::after_ms(60'000), check}), PeerLost);
}

TEST(ShmBootstrap, StrangersGetNothing) {
  TableRendezvous table;
  std::thread first([&] { join_and_add(0, 2, table); });
  const std::string entry = table.get("0/world/shm", Deadline::after_ms(60'000));
  for (const std::string& message : {std::string("hello"), std::string(68, '\1')}) {
    const Fd stranger = connect_stranger(entry);
    EXPECT_GT(send(stranger.get(), message.data(), message.size(), MSG_NOSIGNAL), 0);
    char byte = 0;
    EXPECT_LE(recv(stranger.get(), &byte, 1, 0), 0);  // closed without an answer
  }
  join_and_add(1, 2, table);
  first.join();
}

TEST(ShmBootstrap, TheMissingRankIsNamed) {
  TableRendezvous table;
  try {
    make_shm_communicator(0, 2, table, "0/world", {.join_timeout_ms = 100});
    FAIL();
  } catch (const Timeout& error) {
    EXPECT_NE(std::string(error.what()).find("rank 1"), std::string::npos) << error.what();
  }
  EXPECT_THROW(make_shm_communicator(1, 2, table, "0/world", {.join_timeout_ms = 100}), Timeout);
}

// Rank 1 of a group whose other ranks, except rank 0, do not come.
void expect_missing_ranks(int size) {
  TableRendezvous table;
  std::atomic<bool> over{false};
  ShmOptions options;
  options.check = [&] {
    if (over) throw PeerLost("the test is over");
  };
  std::thread first(
      [&] { EXPECT_THROW(make_shm_communicator(0, size, table, "0/world", options), PeerLost); });
  table.get("0/world/shm", Deadline::after_ms(60'000));
  try {
    make_shm_communicator(1, size, table, "0/world", {.join_timeout_ms = 2000});
    ADD_FAILURE() << "a group of " << size << " has two ranks";
  } catch (const Timeout& error) {
    const std::string text = error.what();
    size_t at = text.find("still waiting for ");
    EXPECT_NE(at, std::string::npos) << text;
    int expected = 2;
    while ((at = text.find("rank ", at)) != std::string::npos) {
      at += 5;
      EXPECT_EQ(std::atoi(text.c_str() + at), expected++) << text;
    }
    EXPECT_GT(expected, 2) << text;
  }
  over = true;
  first.join();
}

TEST(ShmBootstrap, EveryRankLearnsWhoIsMissing) {
  TableRendezvous table;
  std::vector<std::thread> threads;
  for (const int rank : {0, 1, 3})
    threads.emplace_back([&, rank] {
      try {
        make_shm_communicator(rank, 4, table, "0/world", {.join_timeout_ms = 3000});
        ADD_FAILURE() << "rank " << rank;
      } catch (const Timeout& error) {
        EXPECT_NE(std::string(error.what()).find("still waiting for rank 2"), std::string::npos)
            << "rank " << rank << ": " << error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
}

// Rank 0 does not name all of many ranks, but it names no wrong one.
TEST(ShmBootstrap, ARankWhoseTimePassesBeforeThatOfRankZeroLearnsWhoIsMissing) {
  for (const int size : {3, 300}) expect_missing_ranks(size);
}

TEST(ShmBootstrap, ALossEndsTheWaitOfEveryRank) {
  TableRendezvous table;
  std::atomic<bool> lost{false};
  ShmOptions options;
  options.check = [&] {
    if (lost) throw PeerLost("rank 2 is lost");
  };
  std::vector<std::thread> threads;
  for (const int rank : {0, 1})
    threads.emplace_back(
        [&, rank] { EXPECT_THROW(make_shm_communicator(rank, 3, table, "0/world", options), PeerLost); });
  // The ranks 1 of these groups wait for rank 0 to come at all.
  for (const char* key : {"1/world", "2/world"})
    threads.emplace_back(
        [&, key] { EXPECT_THROW(make_shm_communicator(1, 3, table, key, options), PeerLost); });
  lost = true;
  for (std::thread& thread : threads) thread.join();
}

// All ranks learn that one has no shared memory, so that they can choose another transport together.
TEST(ShmBootstrap, IfOneRankCannotAllFailInTheSameWay) {
  TableRendezvous table;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank)
    threads.emplace_back([&, rank] {
      try {
        if (rank == 2) {
          shm::reject_files(2, "the test says so", {table, "0/world", Deadline::after_ms(60'000)});
          return;
        }
        make_shm_communicator(rank, 3, table, "0/world");
        ADD_FAILURE() << "rank " << rank;
      } catch (const CommunicationError& error) {
        EXPECT_EQ(typeid(error), typeid(CommunicationError)) << error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();

  shm::refuse_files("no memory", {table, "1/world", Deadline::after_ms(60'000)});
  try {
    make_shm_communicator(1, 2, table, "1/world");
    FAIL();
  } catch (const CommunicationError& error) {
    EXPECT_NE(std::string(error.what()).find("no memory"), std::string::npos) << error.what();
  }
}

TEST(ShmBootstrap, ASecondProcessOfARankIsRefused) {
  const ShmGroup memory(1);
  const std::shared_ptr<Communicator> group = memory.join(0);
  EXPECT_THROW(memory.join(0), ProtocolError);
}

}  // namespace
}  // namespace mx::comm
