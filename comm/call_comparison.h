// CallComparison: compares the calls of all ranks before data moves, for communicators over a library that
// does not, such as NCCL. Internal.
//
//   CallComparison comparison(messages);   // a Transport between the same ranks, used for nothing else
//   comparison.compare(request, deadline); // throws on every rank if two ranks make different calls
//   ...                                    // now the library moves the data
//
// The descriptions of a call (comm/call_header.h) travel as messages between hosts, beside the library:
//
//   - Not in a collective of the library. If one rank sends while another is in a barrier, the library would
//     wait in different operations until the time limit, and a rank that is gone would be noticed only then.
//     Over messages, every rank that waits gets the other description, or PeerLost, at once.
//   - For each call, not only for the first one of its kind. All ranks must agree whether a call is compared;
//     the ranks that make different calls are the very ones that would disagree.
//
// Cost: each rank sends 256 bytes to every other rank and receives as many, all at once. Then an error names
// exactly the ranks that have not come. With more than kMostDirect ranks, it is log2(ranks) messages one
// after the other, and a Timeout may name a rank that itself waits for the missing one.
//
// Thread-safety: one thread at a time, except abort(), which any thread may call.
#pragma once

#include <exception>
#include <memory>

#include "comm/call.h"
#include "comm/communicator.h"
#include "comm/deadline.h"
#include "comm/transport.h"

namespace mx::comm {

class CallComparison {
 public:
  explicit CallComparison(std::shared_ptr<Transport> messages);

  /// The largest group in which each rank sends its description to every other one.
  static constexpr int kMostDirect = 16;

  /// Blocks until all ranks that take part in the call have described it. Throws ProtocolError, which
  /// contains both descriptions, if two differ; PeerLost; Timeout, which names the ranks that have not come;
  /// and the reason of abort(). After that, every later comparison fails.
  void compare(const Request& request, Deadline deadline);
  /// The library has failed in a call that was compared: the other ranks get this error when they compare
  /// their next call with this rank. Later comparisons of this rank fail.
  void fail(const Request& request, const std::exception_ptr& error) noexcept;
  /// Makes the running and every later compare() throw `reason`, on this rank only.
  void abort(std::exception_ptr reason) { messages_->abort(std::move(reason)); }
  /// Tells the other ranks that this one makes no more calls. No other function may follow.
  void leave() noexcept { messages_->leave(); }

 private:
  const std::shared_ptr<Transport> messages_;
  Workspace workspace_;
  CallNumbers numbers_;
};

}  // namespace mx::comm
