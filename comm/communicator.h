// Communicator: collective operations of a fixed group of ranks on raw buffers, in memory of the host or of
// the communicator's device().
//
//   std::shared_ptr<comm::Communicator> group = comm::world();
//   group->allreduce(gradient, sum, count, comm::Type::f32);   // blocks
//   group->start({.collective = comm::Collective::allreduce, .in = gradient, .out = sum, .count = count,
//                 .done = [](std::exception_ptr error) { ... }});  // returns at once
//
// All ranks must make the same calls in the same order. The calls of one communicator run one after the other
// in that order. The first message of each call carries a description of the call (its number, operation,
// type, count and name). If two ranks disagree, both throw ProtocolError, which contains both descriptions,
// and no data moves.
//
// Order of sums. With Order::rank, the default, every element is the serial left fold over the ranks:
// ((x0 + x1) + x2) + ..., whatever arrives first. So results repeat bit for bit and do not depend on the
// transport. With Order::any the communicator may add in another order if that is faster; all ranks still get
// equal results.
//
// Slices. reduce_scatter() and allgather() cut `count` elements into one slice per rank: slice_of().
//
// Messages. A send may wait for its receiver: all communicators of this library end it only after the
// receiver has made the matching call, because the two compare their descriptions first. So two ranks that
// both send to each other before they receive wait until their deadlines ("mpi" sees a ProtocolError),
// whether they use send() or start(). One of them must receive first; all_to_all() and the other collectives
// have no such order.
//
// Failures. Every call has a deadline. If it passes, or a rank is lost, the call fails with Timeout or
// PeerLost, which name the rank, its host and the call's name; the communicator is then unusable: all later
// calls fail with the same error.
//
// Forks. A communicator belongs to the process that made it. A child that it forks may only destroy its copy.
//
// Thread-safety: any thread may call any function. Callbacks run on a thread of the communicator; they must
// not block and must not make blocking calls of the same communicator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "comm/deadline.h"
#include "comm/type.h"
#include "engine/device/context.h"

namespace mx::comm {

/// In which order the elements of the ranks are combined; see above.
enum class Order : uint8_t { rank, any };
enum class Reduction : uint8_t { sum, min, max };
enum class Collective : uint8_t {
  allreduce,       ///< in: count, out: count
  reduce_scatter,  ///< in: count, out: the slice of this rank
  allgather,       ///< in: the slice of this rank, out: count
  broadcast,       ///< in: count, on rank `root` only; out: count
  all_to_all,      ///< in and out: size() blocks of `count` elements, block r for or from rank r
  barrier,         ///< no buffers
  send,            ///< in: count, to rank `peer`; matches the receive() of the peer, and may wait for it
  receive,         ///< out: count, from rank `peer`
};

const char* to_string(Collective collective);
const char* to_string(Order order);
const char* to_string(Reduction reduction);

struct CallOptions {
  int64_t timeout_ms = 0;  ///< 0: the default of the communicator
  Order order = Order::rank;
  Reduction reduction = Reduction::sum;
  std::string what{};  ///< name of the call in errors, such as the key of a store
};

/// A part of the elements: [begin, begin + count).
struct Slice {
  size_t begin = 0, count = 0;
};

/// Returns the slice of a rank: all slices have count / size elements, the first count % size one more.
Slice slice_of(size_t count, int size, int rank);

/// One call. `in` may equal `out`; for reduce_scatter and allgather, `in` or `out` may also be the place of
/// this rank's slice within the other buffer. Buffers stay valid and unchanged by the caller until `done` has
/// been called.
struct Request {
  Collective collective = Collective::barrier;
  const void* in = nullptr;
  void* out = nullptr;
  size_t count = 0;
  Type type = Type::f32;
  int peer = 0;  ///< root of a broadcast; other rank of send and receive
  CallOptions options;
  /// Called exactly once; null pointer: success. Must not throw.
  std::function<void(std::exception_ptr)> done;
  /// For buffers of device(): called once, when the call begins to run, on the thread that runs it. Returns a
  /// native stream of that device; the call uses the buffers after the work that the stream has by then. If
  /// it throws, the call fails. Null: the buffers may be used at once. Communicators whose device() is the
  /// CPU ignore it.
  std::function<void*()> work_ahead{};
  /// A second time limit, which may be set while the call waits or runs. Null: there is none.
  std::shared_ptr<const DeferredLimit> deferred_limit{};
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// "threads", "shm", "tcp", "shm+tcp", "mpi", ...
  virtual const std::string& type() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Returns the name of the host on which a rank runs. Throws InvalidArgument if there is no such rank.
  virtual std::string host(int rank) const = 0;
  /// The time limit of calls without one of their own.
  virtual int64_t default_timeout_ms() const = 0;
  /// Buffers may be memory of this device or of the host, on each rank as it likes. cpu(): of the host only.
  virtual Context device() const { return cpu(); }

  /// Starts a call and returns at once. Throws InvalidArgument for a wrong request, in which case `done` is
  /// not called.
  virtual void start(Request request) = 0;

  /// Fails the running call and all later ones with `reason`, at once and on this rank only. The first reason
  /// counts. Throws InvalidArgument without a reason.
  virtual void abort(std::exception_ptr reason) = 0;
  /// Returns the error that made the communicator unusable, or null.
  virtual std::exception_ptr failure() const = 0;

  /// For the end of a process whose program still holds the group: tells the other ranks that this one makes
  /// no more calls, as the destructor would. The running call and later ones fail with `reason`. Does nothing
  /// if the end of the process tells the others soon enough.
  virtual void leave_at_exit([[maybe_unused]] std::exception_ptr reason) noexcept {}

  /// Allocates memory, aligned to 64 bytes, that this communicator combines with the fewest copies: "shm"
  /// returns memory that all ranks of the host map. A collective call: all ranks allocate the same sizes in
  /// the same order. The memory may outlive the communicator. The default is plain memory. Throws
  /// OutOfMemory, which concerns this rank only. Any other error makes the communicator unusable.
  virtual std::shared_ptr<void> allocate(size_t bytes);

  // Blocking forms of start(). They throw the error of the call.
  void allreduce(const void* in, void* out, size_t count, Type type, const CallOptions& options = {});
  void reduce_scatter(const void* in, void* out, size_t count, Type type, const CallOptions& options = {});
  void allgather(const void* in, void* out, size_t count, Type type, const CallOptions& options = {});
  void broadcast(const void* in, void* out, size_t count, Type type, int root,
                 const CallOptions& options = {});
  void all_to_all(const void* in, void* out, size_t count, Type type, const CallOptions& options = {});
  void send(const void* in, size_t count, Type type, int peer, const CallOptions& options = {});
  void receive(void* out, size_t count, Type type, int peer, const CallOptions& options = {});
  void barrier(const CallOptions& options = {});
  /// Starts the request and waits for its end. Ignores `request.done`.
  virtual void run(Request request);

 protected:
  Communicator() = default;
};

/// Throws InvalidArgument if the request is wrong for a group of `size` ranks: a rank out of range, a missing
/// buffer, bytes beyond 2^62, a number that is no member of an enumeration.
void check_request(const Request& request, int rank, int size);
/// "allreduce of 10 x f32 'fc1.weight'", for messages.
std::string describe(const Request& request);

}  // namespace mx::comm
