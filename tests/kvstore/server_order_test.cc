// On which server a key is, and in which order messages are sent.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/deadline.h"
#include "comm/net/handshake.h"
#include "comm/net/interface.h"
#include "comm/net/socket.h"
#include "kvstore/server/link.h"
#include "ndarray/ndarray.h"
#include "operators/operators.h"
#include "tests/kvstore/server_cluster.h"

namespace mx {
namespace {

using test::ServerCluster;

/// A store of one worker, and who holds its keys.
class Places {
 public:
  Places(const ServerCluster& cluster, const KVStoreOptions& options)
      : group_(cluster.connect(0)),
        number_(static_cast<uint16_t>(group_->new_store() + 1)),  // of the store that is made next
        store(std::make_unique<mx::detail::DistServerStore>("dist_sync", options, group_)) {}

  void add(const std::string& key, int64_t elements) {
    store->init(key, zeros({elements}));
    NDArray out = zeros({elements});
    store->pull(key, out);
    out.wait();
  }
  /// Returns the servers that have the piece with a number. Pieces are numbered from 1.
  std::vector<int> servers_of(uint32_t piece) {
    std::vector<int> found;
    for (int server = 0; server < group_->servers(); ++server) {
      std::promise<std::string> said;
      kv::Call call;
      // A server that has the piece refuses the sequence; the others do not know the piece.
      call.header = {.kind = kv::Kind::pull, .store = number_, .key = piece, .sequence = 1000};
      call.what = "question";
      call.done = [&](const kv::Bytes&, const std::exception_ptr& error) {
        said.set_value(kv::text_of(error));
      };
      group_->start(server, std::move(call));
      const std::string text = said.get_future().get();
      if (text.find("expected a declared key") == std::string::npos) {
        EXPECT_NE(text.find("got 1000"), std::string::npos) << text;
        found.push_back(server);
      }
    }
    return found;
  }

 private:
  const std::shared_ptr<kv::ServerGroup> group_;
  const uint16_t number_;

 public:
  const std::unique_ptr<KVStore> store;
};

using ServerNumbers = std::vector<int>;

TEST(ServerOrder, AKeyIsWhereTheFewestBytesAre) {
  const ServerCluster cluster(1, 2);
  Places places(cluster, {});
  places.add("large", 1000);
  for (const char* name : {"a", "b", "c", "d"}) places.add(name, 200);  // together less than the large one
  places.add("e", 300);                                                 // now more
  places.add("f", 10);
  EXPECT_EQ(places.servers_of(1), ServerNumbers{0});
  for (const uint32_t small : {2u, 3u, 4u, 5u, 6u})
    EXPECT_EQ(places.servers_of(small), ServerNumbers{1}) << small;
  EXPECT_EQ(places.servers_of(7), ServerNumbers{0});
}

TEST(ServerOrder, PiecesOfALargeKeyAreSpread) {
  const ServerCluster cluster(1, 3);
  Places places(cluster, {.cut_bytes = 1024});
  for (const int64_t elements : {200, 100, 50}) places.add(std::to_string(elements), elements);
  places.add("large", 4 * 256);  // four pieces
  EXPECT_EQ(places.servers_of(4), ServerNumbers{2});
  EXPECT_EQ(places.servers_of(5), ServerNumbers{1});
  EXPECT_EQ(places.servers_of(6), ServerNumbers{0});
  EXPECT_EQ(places.servers_of(7), ServerNumbers{2});
}

TEST(ServerOrder, AKeyThatIsErasedGivesItsBytesBack) {
  const ServerCluster cluster(1, 2);
  Places places(cluster, {});
  places.add("large", 1000);
  places.add("other", 500);
  places.add("third", 100);
  places.store->erase("large");
  places.add("next", 100);
  EXPECT_EQ(places.servers_of(4), ServerNumbers{0});
}

kv::Bytes any_body(const kv::Header& header) { return kv::Bytes::of(std::string(header.bytes, '?')); }

kv::Message numbered(uint64_t number, size_t bytes = 0) {
  kv::Bytes body = kv::Bytes::of(std::string(bytes, 'x'));
  return {{.kind = kv::Kind::push, .number = number, .bytes = bytes}, std::move(body)};
}

/// Reads and writes until `count` messages have come; returns their numbers.
std::vector<uint64_t> numbers_of_messages(kv::Link* sender, kv::Link& receiver, size_t count) {
  std::vector<uint64_t> numbers;
  while (numbers.size() < count) {
    if (sender != nullptr) sender->write();
    const bool open = receiver.read([&](kv::Message message) { numbers.push_back(message.header.number); });
    if (!open) break;
  }
  return numbers;
}

TEST(ServerOrder, MessagesOfHigherPriorityAreSentFirst) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
  kv::Link sender(comm::Fd(ends[0]), any_body), receiver(comm::Fd(ends[1]), any_body);
  sender.send(numbered(1), 0);
  sender.send(numbered(2), -3);
  sender.send(numbered(3), 7);
  sender.send(numbered(4), 0);
  sender.send(numbered(5), kv::Link::kFirst);
  sender.send(numbered(6), 7);
  EXPECT_EQ(numbers_of_messages(&sender, receiver, 6), (std::vector<uint64_t>{5, 3, 6, 1, 4, 2}));
}

TEST(ServerOrder, AMessageOvertakesWhatWaitsButNotWhatIsBeingSent) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
  kv::Link sender(comm::Fd(ends[0]), any_body), receiver(comm::Fd(ends[1]), any_body);
  for (const uint64_t number : {1u, 2u, 3u}) sender.send(numbered(number, 4 << 20), 0);
  sender.write();  // the socket takes a part of the first one
  ASSERT_TRUE(sender.wants_to_write());
  sender.send(numbered(4), 1);
  EXPECT_EQ(numbers_of_messages(&sender, receiver, 4), (std::vector<uint64_t>{1, 4, 2, 3}));
}

TEST(ServerOrder, CallsOfHigherPriorityAreSentFirst) {
  const comm::Deadline deadline = comm::Deadline::after_ms(60000);
  const comm::Listener listener = comm::listen_at("127.0.0.1");
  kv::ServerGroupOptions options;
  options.identity = ServerCluster::identity(0);
  options.servers = {comm::to_string(listener.at)};
  std::unique_ptr<kv::Link> server;
  std::thread acceptor([&] {
    comm::Stream stream = comm::accept_one(listener.socket, deadline);
    comm::Identity self = ServerCluster::identity(-1);
    self.purpose = kv::kServerPurpose;
    comm::handshake_on(stream, comm::Handshake::Side::acceptor, self, deadline, "worker 0");
    server = std::make_unique<kv::Link>(std::move(stream), any_body);
  });
  kv::ServerGroup group(options);
  acceptor.join();
  // The server reads nothing yet, so the first call fills the buffers of the sockets and the others wait.
  const std::string body(size_t{32} << 20, 'x');
  for (const auto& [number, priority] : {std::pair<uint64_t, int>{1, 9}, {2, 0}, {3, 5}, {4, 0}, {5, 7}}) {
    kv::Call call;
    call.header = {.kind = kv::Kind::push, .key = 1, .sequence = number, .number = number};
    if (number == 1) call.body = kv::Bytes::of(body);
    call.priority = priority;
    call.done = [](const kv::Bytes&, const std::exception_ptr&) {};
    group.start(0, std::move(call));
  }
  // The first message greets.
  EXPECT_EQ(numbers_of_messages(nullptr, *server, 6), (std::vector<uint64_t>{0, 1, 5, 3, 2, 4}));
}

}  // namespace
}  // namespace mx
