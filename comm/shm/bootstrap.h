// How the ranks of a host get the descriptors of their shared memory from rank 0. Internal.
//
// Rank 0 listens at an abstract AF_UNIX address that the kernel chooses, and publishes the address and a
// random token. Each other rank connects and sends the token and its rank in one message; rank 0 answers with
// the descriptors. Both check that the other process belongs to the same user. Connections that do not know
// the token are closed and otherwise ignored.
//
// All ranks come to the same result, because they may choose another transport together: a rank that has
// mapped the memory confirms it over its connection, and rank 0 releases all ranks when all have confirmed. A
// rank that cannot reach rank 0, or cannot map the memory, says so in the rendezvous; then all throw
// CommunicationError.
//
// Thread-safety: functions without state.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "comm/deadline.h"
#include "comm/net/fd.h"
#include "comm/rendezvous.h"

namespace mx::comm::shm {

struct SharedFiles {
  Fd region, arena;           ///< `arena` is empty if there is none, or the kernel refused it
  uint64_t window_bytes = 0;  ///< of the arena, per rank
  std::vector<Fd> bells;      ///< an eventfd for each rank; may be empty
};

/// What rank 0 publishes: the abstract address at which it listens, and the token that the others must know.
struct Offer {
  std::string address, token;
};
std::string to_text(const Offer& offer);
/// Throws CommunicationError with the reason of `from`, such as "rank 0", if it has no shared memory, and
/// ProtocolError if the text is anything else.
Offer parse_offer(const std::string& text, const std::string& from);

/// What the ranks have in common while they wait for each other.
struct Joining {
  Rendezvous& rendezvous;
  std::string key;  ///< prefix of the group's entries in the rendezvous
  Deadline deadline;
  std::function<void()> check = {};  ///< called now and then; what it throws ends the wait; may be empty
  std::function<void(int rank)> noticed_timeout =
      {};  ///< called before a Timeout that names the rank; may be empty
  /// The numbers of the ranks in the whole job, for errors and noticed_timeout, if they are others than here;
  /// otherwise empty.
  std::vector<int> numbers = {};
};

/// Rank 0: passes the files to all others and waits until they have mapped them. Throws Timeout naming the
/// ranks that did not, and CommunicationError with the reason of a rank that cannot.
void pass_files(const SharedFiles& files, int size, const Joining& joining);
/// Rank 0: tells the others that there is no shared memory.
void refuse_files(const std::string& reason, const Joining& joining);

/// The files, and the connection to rank 0.
struct TakenFiles {
  SharedFiles files;
  Fd connection;
};
/// The other ranks. Throws CommunicationError with rank 0's reason if it has no shared memory, or if it
/// cannot be reached, Timeout, and AuthenticationError.
TakenFiles take_files(int rank, const Joining& joining);
/// The other ranks: says that this one has mapped the files, and waits for all others. If they do not come,
/// throws what rank 0 has found out. If the deadline of rank 0 is later, asks it who is missing.
void confirm_files(const Fd& connection, const Joining& joining);
/// The other ranks: says that this one cannot use the files.
void reject_files(int rank, const std::string& reason, const Joining& joining);

/// The whole exchange. Rank 0 makes the files with make(). Every rank maps them with map(), which copies the
/// descriptors that it keeps. What one of them throws becomes a CommunicationError on the other ranks.
void share_files(int rank, int size, const Joining& joining, const std::function<SharedFiles()>& make,
                 const std::function<void(const SharedFiles&)>& map);

}  // namespace mx::comm::shm
