// The collectives of one group over MPI, as blocking calls. Internal to the module.
//
// Each call begins with an exchange of heads: the description of the call, and behind it the values of small
// calls. All ranks learn the heads of all, and compare them before data moves. The heads travel in messages
// between two ranks, not in a collective of MPI, for three reasons: ranks that make different calls still
// understand each other, messages may have different lengths, and a rank can look for other things while it
// waits:
//
//   - the reason for which its call has been aborted, and the deadline,
//   - notices of ranks that have left the group or have failed (mpi_notices.h),
//   - the head of a send or receive of a rank that waits for this one, while this one is in a collective.
//
// The heads of a collective go around in log2(ranks) steps: in each, a rank passes on all that it knows.
//
// Thread-safety: only MpiThread calls it, except rank(), size() and hosts().
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/call_header.h"
#include "comm/communicator.h"
#include "comm/mpi/mpi_notices.h"
#include "comm/parts.h"

namespace mx::comm {

class MpiGroup {
 public:
  /// Duplicates MPI_COMM_WORLD. A collective call. The group exists at least until leave().
  static std::shared_ptr<MpiGroup> make();

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// The name of each rank's host.
  const std::vector<std::string>& hosts() const { return hosts_; }
  /// Tells the other ranks that this one makes no more calls, and frees the duplicate.
  void leave();
  /// Tells the other ranks of all groups of this process that it makes no more calls. The groups stay.
  static void leave_all();
  /// A call has been queued; it has ended. Any thread may call them.
  void call_begins() { ++calls_; }
  void call_ended() { --calls_; }
  /// Tells the other ranks of all groups of this process that it has failed. Only the first call counts.
  /// After it, no call may follow.
  static void fail(const std::string& reason) noexcept;

  /// Runs one call. Throws ProtocolError if the ranks make different calls, PeerLost if one has left or
  /// failed, Timeout, and the reason for which MpiThread was aborted.
  void execute(const Request& request);

 private:
  // What a rank waits for.
  struct Wait {
    const Request& request;
    int peer;            // of a send or receive; -1 for a collective
    bool moves = false;  // the heads have come; now data moves
  };

  MpiGroup();
  // Once.
  void tell_end();
  // At the end of the process, while a call still runs: as leave_all(), for groups that have no call.
  static void leave_idle();
  // All groups that have not been left, by number.
  static std::map<uint64_t, std::shared_ptr<MpiGroup>>& living();
  // Exchanges the heads of a collective and compares them. The own one takes `value_bytes` of the input
  // along.
  void meet(const Request& request, size_t value_bytes);
  void meet_for_data(const Request& request);
  // The same between the two ranks of a message.
  void meet_pair(const Request& request, size_t value_bytes);
  // Starts a list of heads with the own one.
  void begin_heads(const Request& request, uint64_t number, size_t value_bytes);
  // Appends heads whose bytes have arrived behind the last one.
  void take_heads(size_t count, size_t bytes);
  void compare(const Request& request, const CallHeader& other, int rank) const;
  CallHeader header(size_t place) const;
  const char* values_at(size_t place) const;
  // The values behind the heads of the call, by rank. They are valid until the next call.
  std::vector<const void*> values() const;
  std::string name(int rank) const;

  // Waits for pending_. If it throws, pending_ is empty.
  void wait(const Wait& what);
  void wait_for_pending(const Wait& what);
  // Ends the messages of a call that has failed.
  void drop_pending(bool cancel) noexcept;
  void look_around(const Wait& what);
  void read_notices();
  void take_notice(int from, const MpiNotice& notice);
  // Throws Timeout, which names the ranks that have not come to the call.
  [[noreturn]] void throw_timeout(const Wait& what);
  void check_left(const Wait& what) const;
  // Answers ranks that wait for a send or receive of this one before they take part in the running
  // collective.
  void check_pairs(const Request& request);
  void post_send(const void* data, size_t bytes, int peer, int tag);
  void post_receive(void* data, size_t bytes, int peer, int tag);

  void allreduce(const Request& request);
  void reduce_scatter(const Request& request, void* out);
  void gather(const Request& request, const void* in);
  void allgather(const Request& request);
  void broadcast(const Request& request);
  void all_to_all(const Request& request);
  void message(const Request& request);
  void exchange(const Request& request, const std::vector<Part>& parts);
  char* workspace(size_t bytes);

  const uint64_t number_;         // of the group
  std::atomic<size_t> calls_{0};  // that are queued or run
  bool told_end_ = false;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  std::vector<std::string> hosts_;
  uint64_t collectives_ = 0;     // in which this rank has begun to take part
  uint64_t met_ = 0;             // of which all heads have come
  std::vector<uint64_t> pairs_;  // the same of messages, by rank
  std::vector<uint64_t> met_pairs_;
  std::map<int, std::vector<char>> early_heads_;   // of messages from a rank that is ahead of this one
  std::vector<std::optional<MpiNotice>> notices_;  // by rank: that it has left or failed
  std::vector<uint64_t> seen_;                     // by rank: the collective in which it has said to be
  std::unique_ptr<char[]> heads_;                  // the own one, then those of the next ranks
  size_t heads_bytes_ = 0, most_heads_bytes_ = 0;
  std::vector<size_t> places_;  // of the heads
  std::vector<char> workspace_;
  std::vector<MPI_Request> pending_;
  std::vector<MPI_Status> statuses_;
};

}  // namespace mx::comm
