// Transport: ordered messages between the ranks of a group. The collectives of comm/collectives.h run on it.
// Internal.
//
// Between two ranks, messages arrive in the order in which they were sent. Sender and receiver know the size
// of each message, so a message is only its bytes. Buffers stay valid until finish() returns. Messages have
// at least one byte.
//
// After await_receive() or finish() has thrown, the transport touches no buffer any more, and no later call
// succeeds. What a rank sent before still reaches the others if they post receives for it: a rank that finds
// a mistake tells the others by a last message, and they must be able to read it although that rank is gone.
//
// Small messages that are posted one after the other for one peer should travel together: a call with little
// data posts its header and its data that way.
//
//   transport.post_send(1, data, bytes);
//   transport.post_receive(1, other, bytes);
//   transport.finish(deadline);   // both have ended
//
// Thread-safety: one thread at a time, except abort(), which any thread may call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "comm/deadline.h"

namespace mx::comm {

class Transport {
 public:
  virtual ~Transport() = default;

  virtual const std::string& type() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string host(int rank) const = 0;
  /// Returns a text that is equal for two ranks if they run on one machine and can share memory there, as far
  /// as can be known before they try. Algorithms group ranks by it. By default the name of the host.
  virtual std::string machine(int rank) const { return host(rank); }

  /// Queues a message. Never blocks. `peer` is another rank.
  virtual void post_send(int peer, const void* data, size_t bytes) = 0;
  virtual void post_receive(int peer, void* data, size_t bytes) = 0;
  /// Blocks until the oldest message that was posted for receiving from `peer` and has not yet been awaited
  /// is complete. Sends progress meanwhile. Throws PeerLost if a peer is lost, Timeout (which names the ranks
  /// that have not delivered) after the deadline, and the reason of abort().
  virtual void await_receive(int peer, Deadline deadline) = 0;
  /// Blocks like await_receive() for the first of the ranks in `peers` whose oldest message is complete, and
  /// returns its place in `peers`. Precondition: a message is awaited from each of them.
  virtual size_t await_first(const std::vector<int>& peers, Deadline deadline) = 0;
  /// Returns how many of the messages from `peer` that were posted and not yet awaited are complete. It may
  /// be asked after an error, too: the messages may explain it.
  virtual uint64_t arrived(int peer) const = 0;
  /// Blocks until everything posted has ended. Throws like await_receive().
  virtual void finish(Deadline deadline) = 0;
  /// The last words after an error: blocks until everything posted for sending has left, at most until the
  /// deadline. Waits for no message of another rank, and reports neither a time limit nor a lost rank.
  virtual void flush(Deadline deadline) noexcept = 0;
  /// Makes the running and every later call throw `reason`. Safe from any thread; the first reason counts.
  virtual void abort(std::exception_ptr reason) = 0;
  /// Tells the other ranks that this one sends nothing more. Used at the end of a process that does not
  /// destroy the transport; no other function may follow. By default nothing: the process's end tells them.
  virtual void leave() noexcept {}
};

}  // namespace mx::comm
