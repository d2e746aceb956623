// Group: the collectives of ranks that share memory. Internal; ShmCommunicator queues the calls for it.
//
// A call begins with an entry: each rank announces what it is about to do, waits for the announcements of all
// others and compares them. Then the data moves in one of three ways, which follow from the announcements, so
// all ranks choose the same one:
//
//   slots   Small calls. Each rank copies its input into its slot before it announces itself. After the
//           entry, every rank computes its own output from all slots. There are two slots, used in turn. A
//           rank fills a slot again two calls later. It can do so only after the entry of the call in
//           between, by which all ranks had read the slot. So one exchange of cache lines is all that such a
//           call costs.
//   direct  The buffers that others need lie in the arena. Each rank works on its part of the buffers of all
//           ranks. All wait for each other at the end, because only then may the caller touch the buffers.
//   staged  All others. The data goes through buffers that stay in the processor's cache, in chunks. In
//           step t, a rank stages chunk t, combines chunk t - 1 and gathers chunk t - 2, so that one wait per
//           step suffices.
//
// Thread-safety: one thread at a time for execute(), one for allocate(); the functions of Peers as it says.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/shm/arena.h"
#include "comm/shm/peers.h"
#include "comm/shm/region.h"

namespace mx::comm::shm {

class Group {
 public:
  /// `arena` may be null. The ranks need not have the same answer to that.
  Group(int region, std::shared_ptr<Arena> arena, int rank, int size, Notices notices = {});
  ~Group();

  void join(const std::string& host, Deadline deadline) { peers_.join(host, deadline); }
  /// Does one call. After an error, except the reason of interrupt(), the other ranks learn that this one is
  /// gone.
  void execute(const Request& request, Deadline deadline);
  void interrupt(std::exception_ptr reason);
  /// Tells the other ranks, as the destructor does, that this one is gone. No execute() may follow.
  void leave() noexcept { peers_.leave_by_itself(); }
  /// Returns memory in the arena, or null on all ranks. After an error, as execute().
  std::shared_ptr<void> allocate(size_t bytes, Deadline deadline);
  std::string host(int rank) const;

 private:
  // A call after its entry.
  struct Call {
    const Request& request;
    Context context;
    size_t element;  // bytes of one
    bool slots;
  };

  void dispatch(const Request& request, Deadline deadline);
  std::shared_ptr<void> allocate_together(size_t bytes, Deadline deadline);
  // Tells the other ranks that this one is gone because of the current exception.
  void leave_after_error();
  // The bytes that a call may put into a slot: the same on all ranks.
  size_t slot_bytes(const Request& request) const;
  // Whether this rank uses its slot. Another rank may come to another answer; then none reads the slots.
  bool uses_slot(const Request& request) const;
  bool all_in_slots() const;
  // Copies the input to this rank's slot if the call uses slots, announces the call, and waits for and
  // compares the announcements of all ranks.
  void enter(const Call& call);
  void announce(Entry& entry, const Request& request, uint64_t number);
  // Throws ProtocolError unless both ranks are in the same call.
  void compare(const Entry& a, int rank_a, const Entry& b, int rank_b, const char* op) const;
  [[noreturn]] void disagree(const Entry& a, int rank_a, const Entry& b, int rank_b, const char* op) const;
  // Throws ProtocolError if this rank waits in a collective while another rank waits in a send or receive for
  // this one, or the other way round: neither call would end. It looks before Peers looks for lost ranks, so
  // that both ranks learn of the two calls, although one of them is the first to fail.
  void check_other_call(int peer, Counter counter, const Context& context) const;
  // Ends a step: all ranks wait for each other.
  void meet(const Call& call);

  Entry& entry(int rank) const { return region_.control(rank).entries[number_ & 1]; }
  // The memory of a rank's buffer in the arena; null if it is not there.
  char* arena_in(int rank, size_t bytes) const;
  char* arena_out(int rank, size_t bytes) const;
  // Whether the buffers of all ranks, which have this many bytes, may be accessed by the others.
  bool all_in_arena(bool in, size_t bytes) const;
  bool all_have_arena() const;

  void combine_slots(const Call& call);
  void allreduce_direct(const Call& call);
  void allreduce_staged(const Call& call);
  void allreduce_staged_by_two(const Call& call);
  void reduce_scatter_direct(const Call& call);
  void reduce_scatter_staged(const Call& call);
  void allgather_direct(const Call& call);
  void allgather_staged(const Call& call);
  void broadcast(const Call& call);
  void all_to_all_direct(const Call& call);
  void all_to_all_staged(const Call& call);
  void compare_ends(const Channel& channel, int receiver, int sender, const char* op) const;
  // Whether the receiver copies the message from the sender's buffer. Valid when both have announced it.
  bool direct_message(const Channel& channel, size_t bytes) const;
  void send(const Call& call);
  void receive(const Call& call);
  void alone(const Request& request);

  // Run the steps of a staged call. stage(c) writes chunk c into a buffer of this rank, combine(c) reads
  // those of all, and gather(c) what all have combined.
  template <class Stage, class Combine>
  void exchange(const Call& call, size_t chunks, const Stage& stage, const Combine& combine);
  template <class Stage, class Combine, class Gather>
  void exchange_and_gather(const Call& call, size_t chunks, const Stage& stage, const Combine& combine,
                           const Gather& gather);

  const int rank_, size_;
  Region region_;
  std::shared_ptr<Arena> arena_;
  Peers peers_;
  uint64_t number_ = 0;  // of the current call
  uint64_t phase_ = 0;
  std::vector<uint64_t> sent_, received_;              // number of messages, per peer
  std::vector<uint64_t> parts_sent_, parts_received_;  // of all messages, per peer
  std::vector<const void*> inputs_;                    // scratch: one pointer per rank
  std::mutex allocate_mutex_;
  uint64_t allocations_ = 0;  // guarded by allocate_mutex_
  bool warned_ = false;       // guarded by allocate_mutex_
};

}  // namespace mx::comm::shm
