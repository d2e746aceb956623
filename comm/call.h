// Call: one call of a communicator while it runs, with its messages. Internal; the algorithms of
// comm/collectives.h are written with it.
//
//   Call call(transport, workspace, request, number, deadline);
//   call.exchange_headers();                          // throws ProtocolError if ranks disagree
//   call.send(1, data, bytes);
//   const auto ticket = call.receive(1, other, bytes);
//   call.await(1, ticket);                            // `other` has arrived
//   call.finish();
//
// Messages of no bytes are left out on both sides. Tickets count the messages from one rank, so one can wait
// for any of them; it includes all earlier ones.
//
// Thread-safety: one thread.
#pragma once

#include <cstdint>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "comm/call_header.h"
#include "comm/communicator.h"
#include "comm/deadline.h"
#include "comm/transport.h"

namespace mx::comm {

/// Memory that calls use one after the other and that only grows.
class Workspace {
 public:
  explicit Workspace(int ranks)
      : size_(static_cast<size_t>(ranks)), headers(size_), peers(size_), all(numbers_below(ranks)) {}
  ~Workspace() { release(); }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  /// Returns at least `bytes` bytes, aligned to 64. What was there before is lost.
  unsigned char* scratch(size_t bytes);

  struct Peer {
    uint64_t posted = 0, awaited = 0;  // messages from this rank
    bool header_sent = false, header_posted = false;
  };

 private:
  static std::vector<int> numbers_below(int count);
  void release();

  const size_t size_;
  unsigned char* scratch_ = nullptr;
  size_t scratch_bytes_ = 0;

 public:
  CallHeader own, failure;          // to the others
  std::vector<CallHeader> headers;  // from the others
  std::vector<Peer> peers;
  std::vector<const void*> inputs;  // of folds
  std::vector<uint64_t> tickets;    // of receives that are awaited one by one
  std::vector<int> children;        // in the tree of a broadcast
  std::vector<int> unchecked;       // ranks whose headers have not been compared

  // Ranks, in their order.
  const std::vector<int> all;  // every rank
  std::vector<int> leaders,
      mine;  // the first rank of each machine, and the ranks of this machine; empty: not known
};

/// Returns whether a call concerns two ranks only: send and receive.
inline bool is_between_two(const Request& request) {
  return request.collective == Collective::send || request.collective == Collective::receive;
}

/// Numbers the calls of a rank: those of all ranks together, and those with each other rank.
class CallNumbers {
 public:
  explicit CallNumbers(int ranks) : pairs_(static_cast<size_t>(ranks)) {}
  uint64_t next(const Request& request) {
    return is_between_two(request) ? ++pairs_[static_cast<size_t>(request.peer)] : ++collectives_;
  }

 private:
  uint64_t collectives_ = 0;
  std::vector<uint64_t> pairs_;
};

class Call {
 public:
  Call(Transport& transport, Workspace& workspace, const Request& request, uint64_t number, uint8_t algorithm,
       Deadline deadline);

  int rank() const { return rank_; }
  int size() const { return size_; }
  const Request& request() const { return request_; }
  Workspace& workspace() { return workspace_; }
  const Transport& transport() const { return transport_; }

  // Pointers to elements of the request's buffers, and sizes.
  size_t width() const { return width_; }
  size_t bytes(size_t elements) const { return elements * width_; }
  const unsigned char* in(size_t element = 0) const {
    return static_cast<const unsigned char*>(request_.in) + element * width_;
  }
  unsigned char* out(size_t element = 0) const {
    return static_cast<unsigned char*>(request_.out) + element * width_;
  }
  Slice slice(int rank) const { return slice_of(request_.count, size_, rank); }

  using Ticket = uint64_t;
  void send(int peer, const void* data, size_t bytes) {
    if (bytes > 0) transport_.post_send(peer, data, bytes);
  }
  Ticket receive(int peer, void* data, size_t bytes);
  void await(int peer, Ticket ticket);
  /// Blocks until all messages of this call have ended.
  void finish();

  /// The header of this call, to one rank and from it. check_header() waits for it and compares: the messages
  /// behind it are awaited only afterwards.
  void send_header(int peer);
  Ticket receive_header(int peer);
  void check_header(int peer, Ticket ticket);
  /// The same for the headers of all ranks, in the order in which they arrive: two ranks whose calls differ
  /// need not wait for a third one to find that out.
  void check_headers();
  /// All headers to and from all ranks. No rank returns if one disagrees.
  void exchange_headers();

  /// After a lost rank or a time limit: returns a ProtocolError if a header that has arrived, and that nobody
  /// has compared yet, describes another call; else null. A rank that finds the difference first may be gone
  /// before this one has compared.
  std::exception_ptr arrived_mismatch();
  /// After an error: tells the ranks that wait for the header of this rank, if `tell`, and ends all messages.
  /// Does not throw.
  void give_up(const std::exception_ptr& error, bool tell) noexcept;

 private:
  void compare_header(int peer);
  [[noreturn]] void fail_mismatch(int peer, const CallHeader& got);

  Transport& transport_;
  Workspace& workspace_;
  const Request& request_;
  const Deadline deadline_;
  const int rank_, size_;
  const size_t width_;
};

}  // namespace mx::comm
