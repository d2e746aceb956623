// How ranks get their shared memory from rank 0.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/shm/shm_communicator.h"
#include "engine/base/error.h"

namespace mx::comm {
namespace {

// A table within this process.
class TableRendezvous final : public Rendezvous {
 public:
  void put(const std::string& key, const std::string& value) override {
    std::lock_guard lock(mutex_);
    entries_[key] = value;
    changed_.notify_all();
  }
  std::string get(const std::string& key, Deadline deadline) override {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_until(lock, deadline.at(), [&] { return entries_.count(key) > 0; }))
      throw Timeout("[get] nothing at " + key);
    return entries_[key];
  }
  uint64_t watch(const std::string&, Changed) override { return 0; }
  void unwatch(uint64_t) override {}

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> entries_;
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

TEST(ShmBootstrap, RanksFindEachOther) {
  TableRendezvous table;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) threads.emplace_back([&, rank] { join_and_add(rank, 4, table); });
  for (std::thread& thread : threads) thread.join();
}

TEST(ShmBootstrap, StrangersGetNothing) {
  TableRendezvous table;
  std::thread first([&] { join_and_add(0, 2, table); });
  const std::string entry = table.get("0/world/shm", Deadline::after_ms(60'000));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  size_t length = 0;
  for (size_t at = 3; entry[at] != ' '; at += 2)
    address.sun_path[length++] = static_cast<char>(std::stoi(entry.substr(at, 2), nullptr, 16));
  for (const std::string& message : {std::string("hello"), std::string(68, '\1')}) {
    const int stranger = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    ASSERT_EQ(connect(stranger, reinterpret_cast<const sockaddr*>(&address),
                      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length)),
              0);
    EXPECT_GT(send(stranger, message.data(), message.size(), MSG_NOSIGNAL), 0);
    char byte = 0;
    EXPECT_LE(recv(stranger, &byte, 1, 0), 0);  // closed without an answer
    close(stranger);
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
  EXPECT_THROW(make_shm_communicator(1, 2, table, "0/world", {.join_timeout_ms = 100}), CommunicationError);
}

TEST(ShmBootstrap, ASecondProcessOfARankIsRefused) {
  const ShmGroup memory(1);
  const std::shared_ptr<Communicator> group = memory.join(0);
  EXPECT_THROW(memory.join(0), ProtocolError);
}

}  // namespace
}  // namespace mx::comm
