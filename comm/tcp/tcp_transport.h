// TcpTransport: a Transport over one connected stream socket per pair of ranks. Internal.
//
// The calling thread does all the work; there is no thread of the transport. post_send() and post_receive()
// only queue. await_receive() and finish() write several messages with one system call, read straight into
// the posted buffers, and poll the sockets: first with reads that do not block, then asleep in poll(2). While
// a call waits, it serves all connections in both directions. So two ranks that send large messages to each
// other cannot block each other. Bytes for which no receive has been posted stay in the kernel.
//
// A message of 0 bytes sends nothing: its receive completes with the one before it.
//
// If a connection breaks, the call throws PeerLost with the rank and its host. First it asks
// `explain_loss`, which may know the cause (another rank may have died first) and may wait a moment for it.
//
// Thread-safety: see Transport.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/tcp/message_queue.h"
#include "comm/transport.h"

namespace mx::comm {

struct TcpPeer {
  int fd = -1;  ///< a connected stream socket, owned by the transport from now on; -1 for this rank itself
  std::string host;
};

struct TcpOptions {
  /// Returns why a rank was lost, as a whole sentence for the error, or "" if nothing is known.
  std::function<std::string(int rank)> explain_loss;
  /// Called before Timeout is thrown, with a rank whose message did not come. May be empty.
  std::function<void(int rank)> noticed_timeout = {};
  /// How long a call that waits polls before it sleeps. Between two looks at the sockets it yields the
  /// processor: the rank it waits for, or a computation, may need the same core. If that takes long, the
  /// next waits sleep at once.
  int64_t spin_us = 40;
  /// The most bytes of one system call. Tests choose few, to cut messages in every place.
  size_t most_bytes_per_call = size_t{1} << 20;
};

class TcpTransport final : public Transport {
 public:
  /// `peers` has one entry per rank. Takes the sockets in every case, also if it throws. Throws
  /// CommunicationError if the system refuses.
  TcpTransport(int rank, std::vector<TcpPeer> peers, TcpOptions options = {});
  ~TcpTransport() override;

  const std::string& type() const override;
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }
  std::string host(int rank) const override;

  void post_send(int peer, const void* data, size_t bytes) override;
  void post_receive(int peer, void* data, size_t bytes) override;
  void await_receive(int peer, Deadline deadline) override;
  void finish(Deadline deadline) override;
  void flush(Deadline deadline) noexcept override;
  void abort(std::exception_ptr reason) override;

 private:
  struct Peer {
    int fd = -1;
    std::string host;
    MessageQueue sends, receives;
    uint64_t awaited = 0;  ///< receives that await_receive() or finish() has returned for
  };

  void close_all();
  Peer& other(int peer, const char* call);
  void throw_if_aborted() const;
  /// Throws what `error` says, and makes all later calls throw it.
  template <class Error>
  [[noreturn]] void fail(const Error& error);
  [[noreturn]] void lose(int peer, const std::string& why);
  /// Of the ranks whose messages have not come: the first that has sent nothing, otherwise the first; or -1.
  int silent_rank() const;
  [[noreturn]] void time_out();
  /// Transfers what can be transferred now. Returns whether anything was.
  bool progress();
  bool send_some(int rank, Peer& peer);
  /// Sends what the socket takes now. Returns its bytes; 0: it takes nothing now; -1: an error, in errno.
  ssize_t try_send(Peer& peer) noexcept;
  bool receive_some(int rank, Peer& peer);
  /// Blocks until a socket is ready for something that is posted, or abort(). Throws Timeout.
  void sleep(Deadline deadline);
  template <class Done>
  void run_until(Done done, Deadline deadline);
  std::string others_closed(int except) const;

  const int rank_;
  std::vector<Peer> peers_;
  const TcpOptions options_;
  int wake_ = -1;  ///< eventfd, readable after abort()
  std::vector<pollfd> polled_;
  int crowded_waits_ = 0;  ///< waits to come that do not poll, because a yield took long

  std::atomic<bool> aborted_{false};
  mutable std::mutex mutex_;
  std::exception_ptr reason_;  ///< guarded by mutex_, set before aborted_
};

}  // namespace mx::comm
