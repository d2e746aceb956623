// TcpTransport: a Transport over one connected stream socket per pair of ranks. Internal.
//
// The calling thread does all the work; there is no thread of the transport. post_send() and post_receive()
// only queue. await_receive() and finish() write several messages with one system call, read straight into
// the posted buffers, and poll the sockets: first with reads that do not block, then asleep in poll(2). While
// a call waits, it serves all connections in both directions. So two ranks that send large messages to each
// other cannot block each other. Bytes for which no receive has been posted stay in the kernel; with TLS, at
// most one record of them is in the Stream.
//
// A message of 0 bytes sends nothing: its receive completes with the one before it.
//
// Shared memory. After share_memory(), the messages between ranks of one host go through rings in shared
// memory (comm/shm/rings.h) and not through their connection, which then only tells when a rank has ended. A
// call that waits looks at rings and sockets in turn, and sleeps in one poll(2) for both: a rank that writes
// into a ring rings the bell of the reader, which is a descriptor. The type of such a group is "shm+tcp".
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

#include "comm/net/fd.h"
#include "comm/net/stream.h"
#include "comm/shm/rings.h"
#include "comm/tcp/message_queue.h"
#include "comm/transport.h"

namespace mx::comm {

struct TcpPeer {
  Stream stream;  ///< connected; none for this rank itself
  std::string host;
  std::string machine = {};  ///< see Transport::machine(); empty: the host's name
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

  /// Uses shared memory with the ranks `members`, ascending, of which this one is number rings->rank(). All
  /// of them do so. The ranks of other hosts call it too, and so does one whose host has no shared memory:
  /// then `rings` is null and the connections carry everything. Call it before the first message.
  void share_memory(std::unique_ptr<shm::Rings> rings, const std::vector<int>& members);
  /// Returns whether messages to and from a rank go through shared memory.
  bool shares_memory(int rank) const { return peers_[static_cast<size_t>(rank)].member >= 0; }

  const std::string& type() const override { return type_; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }
  std::string host(int rank) const override;
  std::string machine(int rank) const override;

  void post_send(int peer, const void* data, size_t bytes) override;
  void post_receive(int peer, void* data, size_t bytes) override;
  void await_receive(int peer, Deadline deadline) override;
  size_t await_first(const std::vector<int>& peers, Deadline deadline) override;
  uint64_t arrived(int peer) const override;
  void finish(Deadline deadline) override;
  void flush(Deadline deadline) noexcept override;
  void abort(std::exception_ptr reason) override;
  void leave() noexcept override;

 private:
  struct Peer {
    Stream stream;
    std::string host, machine;
    MessageQueue sends, receives;
    uint64_t awaited = 0;  ///< receives that await_receive() or finish() has returned for
    int member = -1;       ///< number within rings_; -1: the socket carries the messages
    bool ended = false;    ///< of a member: its connection is closed, so its ring gets no more bytes
    std::string broken;    ///< why its socket takes no more bytes; it may still have some to be received
  };

  Peer& other(int peer, const char* call);
  void throw_if_aborted() const;
  /// Throws what `error` says, and makes all later calls throw it.
  template <class Error>
  [[noreturn]] void fail(const Error& error);
  [[noreturn]] void lose(int peer, const std::string& why);
  /// Takes what other ranks than `lost` have sent already. Ignores errors.
  void receive_rest(int lost);
  /// Of the ranks whose messages have not come: the first that has sent nothing, otherwise the first; or -1.
  int silent_rank() const;
  [[noreturn]] void time_out();
  /// Transfers what can be transferred now. Returns whether anything was.
  bool progress();
  bool send_some(int rank, Peer& peer);
  /// Sends what the socket or the ring takes now. Returns its bytes; 0: it takes nothing now; -1: an error,
  /// in errno.
  ssize_t try_send(Peer& peer) noexcept;
  bool receive_some(int rank, Peer& peer);
  bool read_ring(int rank, Peer& peer);
  /// Looks at the rings for a few microseconds, without entering the kernel. Returns whether one has progress
  /// to make.
  bool look_at_rings() const;
  /// Adds what poll() has to watch for the messages of a peer. Returns false if its ring can make progress
  /// now.
  bool watch(Peer& peer, bool sends, bool receives);
  /// Notes the members whose connections poll() has found closed.
  void note_ended();
  /// Blocks until a socket is ready for something that is posted, or abort(). Throws Timeout.
  void sleep(Deadline deadline);
  template <class Done>
  void run_until(Done done, Deadline deadline);
  std::string others_closed(int except) const;

  const int rank_;
  std::string type_ = "tcp";
  std::vector<Peer> peers_;
  const TcpOptions options_;
  std::unique_ptr<shm::Rings> rings_;
  bool losing_ = false;       ///< a loss has been found, and the messages that came before it are being read
  bool polls_rings_ = false;  ///< a waiting call polls the rings: the host has a processor for each rank
  Fd wake_;                   ///< eventfd, readable after abort()
  std::vector<pollfd> polled_;
  int crowded_waits_ = 0;  ///< waits to come that do not poll, because a yield took long

  std::atomic<bool> aborted_{false};
  mutable std::mutex mutex_;
  std::exception_ptr reason_;  ///< guarded by mutex_, set before aborted_
};

}  // namespace mx::comm
