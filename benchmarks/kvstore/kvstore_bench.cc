// kvstore_bench: push and pull through one server, beside bare sockets that carry the same bytes.
// JSON lines with bench "kvstore", in gigabytes per second; `threads` is the number of workers.
//
//   kvstore_bench --rounds 20
//
// A round of the worker pushes 64 MB, as keys of one size, and pulls the new values (pushpull): the bytes
// travel twice. The server and the worker are processes of this host. Systems: "dist_sync"; "loopback": a
// process that sends back each piece that it has received, with blocking reads and writes, the limit of the
// transport for a server with one thread. Both run in turn, round after round, so that a machine that slows
// down slows both.
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/support/clock.h"
#include "benchmarks/support/report.h"
#include "comm/net/socket.h"
#include "kvstore/dist_server.h"
#include "kvstore/server/server.h"
#include "kvstore/server/server_group.h"

namespace {

using namespace mx;

constexpr size_t kPiece = 4 << 20;
constexpr size_t kBytes = 64 << 20;                                  // of a round
constexpr size_t kSizes[] = {64 << 10, 1 << 20, 4 << 20, 64 << 20};  // of a key

comm::Identity identity_of(int rank) {
  comm::Identity self;
  self.job = "kvstore_bench";
  self.secret = "bench";
  self.rank = rank;
  return self;
}

const comm::Deadline kDeadline = comm::Deadline::after_ms(600'000);

/// Sends back all that it receives, piece by piece.
[[noreturn]] void echo(const comm::Fd& listener) {
  try {
    comm::Stream socket = comm::accept_one(listener, kDeadline);
    std::vector<std::byte> piece(kPiece);
    for (;;) {
      uint64_t bytes = 0;
      comm::receive_exactly(socket, std::as_writable_bytes(std::span(&bytes, 1)), kDeadline);
      for (uint64_t done = 0; done < bytes;) {
        const std::span<std::byte> part(piece.data(), std::min<uint64_t>(kPiece, bytes - done));
        comm::receive_exactly(socket, part, kDeadline);
        comm::send_all(socket, part, kDeadline);
        done += part.size();
      }
    }
  } catch (const std::exception&) {
    _exit(0);
  }
}

/// Sends an array and receives as much, both at once.
void exchange(comm::Stream& socket, std::vector<std::byte>& data) {
  const uint64_t bytes = data.size();
  comm::send_all(socket, std::as_bytes(std::span(&bytes, 1)), kDeadline);
  size_t sent = 0, received = 0;
  while (received < data.size()) {
    pollfd entry{socket.fd(), static_cast<short>(POLLIN | (sent < data.size() ? POLLOUT : 0)), 0};
    if (::poll(&entry, 1, -1) < 0) continue;
    if ((entry.revents & POLLIN) != 0) {
      const ssize_t got = ::recv(socket.fd(), data.data() + received, sent - received, MSG_DONTWAIT);
      if (got > 0) received += static_cast<size_t>(got);
    }
    if ((entry.revents & POLLOUT) != 0) {
      const ssize_t put =
          ::send(socket.fd(), data.data() + sent, data.size() - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (put > 0) sent += static_cast<size_t>(put);
    }
  }
}

template <class F>
double gigabytes_per_second(F&& round) {
  const int64_t begin = bench::now_ns();
  round();
  return 2.0 * static_cast<double>(kBytes) / static_cast<double>(bench::now_ns() - begin);
}

[[noreturn]] void serve(kv::Server& server) {
  server.run();
  _exit(0);
}

int run(int rounds) {
  // Processes are made before the engine starts its threads.
  kv::Server server({.identity = identity_of(-1), .workers = 1});
  const comm::Listener listener = comm::listen_at("127.0.0.1");
  std::vector<pid_t> children;
  children.push_back(fork());
  if (children.back() == 0) serve(server);
  children.push_back(fork());
  if (children.back() == 0) echo(listener.socket);

  comm::Stream bare = comm::connect_to(listener.at, kDeadline);
  kv::ServerGroupOptions options;
  options.identity = identity_of(0);
  options.servers = {server.address()};
  const auto group = std::make_shared<kv::ServerGroup>(std::move(options));
  const std::shared_ptr<KVStore> store =
      std::make_shared<detail::DistServerStore>("dist_sync", KVStoreOptions{}, group);
  for (const size_t bytes : kSizes) {
    std::vector<KVKey> keys;
    std::vector<NDArray> arrays;
    std::vector<KVStore::Values> values;
    for (size_t i = 0; i < kBytes / bytes; ++i) {
      keys.emplace_back(std::to_string(bytes) + "/" + std::to_string(i));
      arrays.push_back(ones({static_cast<int64_t>(bytes / sizeof(float))}));
      values.emplace_back(arrays.back());
      store->init(keys.back(), arrays.back());
    }
    std::vector<std::byte> buffer(kBytes, std::byte{1});
    std::vector<double> ours, theirs;
    for (int round = 0; round < rounds + 2; ++round) {
      const double mine = gigabytes_per_second([&] {
        store->pushpull(keys, values, values);
        for (const NDArray& array : arrays) array.wait();
      });
      const double limit = gigabytes_per_second([&] { exchange(bare, buffer); });
      if (round < 2) continue;
      ours.push_back(mine);
      theirs.push_back(limit);
    }
    for (const auto& [name, samples] : {std::pair("dist_sync", ours), std::pair("loopback", theirs)})
      bench::print({.bench = "kvstore",
                    .case_name = "pushpull/" + std::to_string(bytes),
                    .system = name,
                    .threads = 1,
                    .unit = "GB/s",
                    .value = bench::summarize(samples)});
    bench::note("keys of " + std::to_string(bytes) + " bytes: " +
                std::to_string(100 * bench::median(ours) / bench::median(theirs)) + "% of the transport");
    for (const KVKey& key : keys) store->erase(key);
  }
  wait_all();  // for the erasing
  group->leave();
  for (const pid_t child : children) kill(child, SIGKILL);
  for (const pid_t child : children) waitpid(child, nullptr, 0);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const bool with_rounds = argc == 3 && std::string(argv[1]) == "--rounds";
    if (argc != 1 && !with_rounds) {
      bench::note("usage: kvstore_bench [--rounds N]");
      return 2;
    }
    return run(with_rounds ? std::max(1, std::atoi(argv[2])) : 15);
  } catch (const std::exception& e) {
    bench::note(e.what());
    return 1;
  }
}
