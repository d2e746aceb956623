#include "comm/shm/group.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "comm/hash.h"
#include "engine/base/check.h"
#include "engine/base/log.h"

namespace mx::comm::shm {
namespace {

// The place of each buffer that the caller may use for `in` within `out`, or the other way round, is the one
// that only this rank accesses: that of its slice. At any other place, other ranks would write what is still
// to be read.
bool overlaps(const Request& request, int rank, int size) {
  const size_t element = size_of(request.type);
  const size_t all = request.count * element;
  const Slice slice = slice_of(request.count, size, rank);
  const char* const in = static_cast<const char*>(request.in);
  const char* const out = static_cast<const char*>(request.out);
  size_t in_bytes = all, out_bytes = all;
  switch (request.collective) {
    case Collective::reduce_scatter:
      out_bytes = slice.count * element;
      if (in + slice.begin * element == out) return false;
      break;
    case Collective::allgather:
      in_bytes = slice.count * element;
      if (out + slice.begin * element == in) return false;
      break;
    case Collective::all_to_all:
      in_bytes = out_bytes = all * static_cast<size_t>(size);
      break;
    default:  // the ranks access disjoint parts, or only read
      return false;
  }
  const std::less<const char*> before;
  return before(in, out + out_bytes) && before(out, in + in_bytes);
}

std::string describe_entry(const Entry& entry) {
  if (entry.collective > static_cast<uint8_t>(Collective::receive) || entry.type >= kTypes)
    return "an unknown call";
  Request request;
  request.collective = static_cast<Collective>(entry.collective);
  request.type = static_cast<Type>(entry.type);
  request.count = entry.count;
  request.peer = entry.peer;
  request.options.order = static_cast<Order>(entry.order);
  request.options.reduction = static_cast<Reduction>(entry.reduction);
  const size_t shown = std::min<size_t>(entry.what_bytes, kWhatBytes);
  request.options.what.assign(entry.what, shown);
  if (entry.what_bytes > shown) request.options.what += "...";
  return mx::detail::concat("call ", entry.number.load(std::memory_order_relaxed), ", ", describe(request));
}

}  // namespace

Group::Group(int region, std::shared_ptr<Arena> arena, int rank, int size, Notices notices)
    : rank_(rank),
      size_(size),
      region_(region, size),
      arena_(std::move(arena)),
      peers_(region_, rank, std::move(notices),
             [this](int peer, Counter counter, const Context& context) {
               check_other_call(peer, counter, context);
             }),
      sent_(static_cast<size_t>(size)),
      received_(static_cast<size_t>(size)),
      parts_sent_(static_cast<size_t>(size)),
      parts_received_(static_cast<size_t>(size)),
      inputs_(static_cast<size_t>(size)) {}

Group::~Group() = default;

std::string Group::host(int rank) const {
  const Control& control = region_.control(rank);
  return {control.host, strnlen(control.host, sizeof(control.host))};
}

void Group::interrupt(std::exception_ptr reason) { peers_.interrupt(std::move(reason)); }

void Group::execute(const Request& request, Deadline deadline) {
  try {
    dispatch(request, deadline);
  } catch (...) {
    leave_after_error();
    throw;
  }
}

void Group::leave_after_error() {
  // An abort concerns this rank only; the others learn of it when its communicator or its process ends.
  if (peers_.interrupted()) return;
  try {
    throw;
  } catch (const PeerLost& error) {
    peers_.leave(error.what(), peers_.lost_rank());
  } catch (...) {
    peers_.leave(current_exception_text(), -1);
  }
}

void Group::dispatch(const Request& request, Deadline deadline) {
  if (size_ == 1) return alone(request);
  Call call{request, {to_string(request.collective), &request, deadline, 0}, size_of(request.type), false};
  if (request.collective == Collective::send) return send(call);
  if (request.collective == Collective::receive) return receive(call);
  call.slots = uses_slot(request);
  enter(call);
  if (request.count == 0 || request.collective == Collective::barrier) return;
  if (all_in_slots()) return combine_slots(call);
  const size_t ranks = static_cast<size_t>(size_);
  const size_t bytes = request.count * call.element;
  switch (request.collective) {
    case Collective::allreduce:
      return all_in_arena(true, bytes) && all_in_arena(false, bytes) ? allreduce_direct(call)
                                                                     : allreduce_staged(call);
    case Collective::reduce_scatter:
      return all_in_arena(true, bytes) ? reduce_scatter_direct(call) : reduce_scatter_staged(call);
    case Collective::allgather:
      return all_in_arena(false, bytes) ? allgather_direct(call) : allgather_staged(call);
    case Collective::broadcast:
      return broadcast(call);
    case Collective::all_to_all:
      return all_in_arena(true, bytes * ranks) ? all_to_all_direct(call) : all_to_all_staged(call);
    default:
      return;
  }
}

size_t Group::slot_bytes(const Request& request) const {
  const size_t bytes = request.count * size_of(request.type);
  switch (request.collective) {
    case Collective::all_to_all:
      return bytes * static_cast<size_t>(size_);
    case Collective::barrier:
      return 0;
    default:  // of an allgather, the largest slice would do, but all ranks must come to the same answer
      return bytes;
  }
}

bool Group::uses_slot(const Request& request) const {
  const size_t bytes = slot_bytes(request);
  if (request.collective != Collective::allreduce || bytes <= kArenaSlotBytes) return bytes <= kSlotBytes;
  return bytes <= kSlotBytes &&
         (arena_ == nullptr || !arena_->has(request.in, bytes) || !arena_->has(request.out, bytes));
}

bool Group::all_in_slots() const {
  for (int peer = 0; peer < size_; ++peer)
    if (entry(peer).slot == 0) return false;
  return true;
}

void Group::enter(const Call& call) {
  const Request& request = call.request;
  ++number_;
  if (call.slots && request.count > 0 && request.collective != Collective::barrier) {
    size_t bytes = slot_bytes(request);
    if (request.collective == Collective::allgather)
      bytes = slice_of(request.count, size_, rank_).count * call.element;
    if ((request.collective != Collective::broadcast || request.peer == rank_) && bytes > 0)
      std::memcpy(region_.slot(rank_, number_), request.in, bytes);
  }
  entry(rank_).slot = call.slots;
  announce(entry(rank_), request, number_);
  peers_.wait_all(Counter::entry, number_, call.context);
  for (int peer = 1; peer < size_; ++peer) compare(entry(0), 0, entry(peer), peer, call.context.op);
}

void Group::announce(Entry& entry, const Request& request, uint64_t number) {
  const std::string& what = request.options.what;
  const bool barrier = request.collective == Collective::barrier;
  entry.count = barrier ? 0 : request.count;
  entry.what_hash = hash_text(what);
  entry.what_bytes = static_cast<uint32_t>(what.size());
  std::memcpy(entry.what, what.data(), std::min(what.size(), kWhatBytes));
  entry.collective = static_cast<uint8_t>(request.collective);
  entry.type = barrier ? uint8_t{0} : static_cast<uint8_t>(request.type);
  entry.order = static_cast<uint8_t>(request.options.order);
  entry.reduction = static_cast<uint8_t>(request.options.reduction);
  // Only a broadcast has a root that all ranks agree on. The two ends of a message each name the other.
  entry.peer = request.collective == Collective::broadcast || request.collective == Collective::send ||
                       request.collective == Collective::receive
                   ? request.peer
                   : 0;
  const bool arena = arena_ != nullptr;
  entry.in_offset = arena ? arena_->offset_of(request.in, 1) : kNowhere;
  entry.out_offset = arena ? arena_->offset_of(request.out, 1) : kNowhere;
  entry.arena = arena;
  entry.overlaps = arena && overlaps(request, rank_, size_);
  peers_.publish(entry.number, number);
}

void Group::compare(const Entry& a, int rank_a, const Entry& b, int rank_b, const char* op) const {
  const bool same = a.collective == b.collective && a.type == b.type && a.count == b.count &&
                    a.peer == b.peer && a.order == b.order && a.reduction == b.reduction &&
                    a.what_hash == b.what_hash && a.what_bytes == b.what_bytes;
  if (!same) disagree(a, rank_a, b, rank_b, op);
}

void Group::disagree(const Entry& a, int rank_a, const Entry& b, int rank_b, const char* op) const {
  throw ProtocolError(mx::detail::concat("[", op, "] expected all ranks to make the same call, got ",
                                         describe_entry(a), " on ", peers_.name(rank_a), ", and ",
                                         describe_entry(b), " on ", peers_.name(rank_b)));
}

void Group::check_other_call(int peer, Counter counter, const Context& context) const {
  const auto announced = [](const Entry& e) { return e.number.load(std::memory_order_acquire); };
  if (counter == Counter::entry) {
    const Entry& mine = entry(rank_);
    for (int other = 0; other < size_; ++other) {
      if (other == rank_) continue;
      const Channel& from = region_.channel(other, rank_);
      const Channel& to = region_.channel(rank_, other);
      const bool sends = announced(from.sending) > announced(from.receiving);
      const bool receives = announced(to.receiving) > announced(to.sending);
      // A rank that is in this call too, or past it, waits in its next call, as it may. Its entry is read
      // after its message, because it may have announced both since this rank looked last.
      if ((sends || receives) && announced(entry(other)) < number_)
        disagree(mine, rank_, sends ? from.sending : to.receiving, other, context.op);
    }
  } else if (counter == Counter::sending || counter == Counter::receiving) {
    const Control& other = region_.control(peer);
    const uint64_t latest = std::max(announced(other.entries[0]), announced(other.entries[1]));
    if (latest > number_)
      disagree(counter == Counter::sending ? region_.channel(peer, rank_).receiving
                                           : region_.channel(rank_, peer).sending,
               rank_, other.entries[latest & 1], peer, context.op);
  }
}

void Group::meet(const Call& call) {
  peers_.publish(region_.control(rank_).phase, ++phase_);
  peers_.wait_all(Counter::phase, phase_, call.context);
}

char* Group::arena_in(int rank, size_t bytes) const {
  const uint64_t offset = entry(rank).in_offset;
  return arena_ != nullptr && arena_->contains(offset, bytes) ? arena_->at(offset) : nullptr;
}

char* Group::arena_out(int rank, size_t bytes) const {
  const uint64_t offset = entry(rank).out_offset;
  return arena_ != nullptr && arena_->contains(offset, bytes) ? arena_->at(offset) : nullptr;
}

// A rank without an arena announces kNowhere for itself, so that the others come to the same answer.
bool Group::all_in_arena(bool in, size_t bytes) const {
  for (int peer = 0; peer < size_; ++peer)
    if (entry(peer).overlaps != 0 || (in ? arena_in(peer, bytes) : arena_out(peer, bytes)) == nullptr)
      return false;
  return true;
}

bool Group::all_have_arena() const {
  for (int peer = 0; peer < size_; ++peer)
    if (entry(peer).arena == 0) return false;
  return true;
}

void Group::alone(const Request& request) {
  size_t bytes = request.count * size_of(request.type);
  if (request.collective == Collective::barrier || bytes == 0 || request.in == request.out) return;
  std::memmove(request.out, request.in, bytes);
}

std::shared_ptr<void> Group::allocate(size_t bytes, Deadline deadline) {
  std::lock_guard lock(allocate_mutex_);
  if (size_ == 1) return arena_ != nullptr ? arena_->allocate(bytes) : nullptr;
  try {
    return allocate_together(bytes, deadline);
  } catch (...) {
    leave_after_error();
    throw;
  }
}

std::shared_ptr<void> Group::allocate_together(size_t bytes, Deadline deadline) {
  const Context context{"allocate", nullptr, deadline, 1};
  Control& own = region_.control(rank_);
  // The numbers of the two steps are even and odd, so that they use the two places in turn.
  uint64_t number = ++allocations_;
  Allocation& wanted = own.allocations[number & 1];
  wanted.bytes = bytes;
  peers_.publish(wanted.number, number);
  peers_.wait_all(Counter::allocation, number, context);
  for (int peer = 0; peer < size_; ++peer) {
    const size_t other = region_.control(peer).allocations[number & 1].bytes;
    MX_CHECK(other == bytes, ProtocolError, "[allocate] expected all ranks to allocate the same sizes, got ",
             bytes, " bytes on ", peers_.name(rank_), ", and ", other, " on ", peers_.name(peer));
  }
  std::shared_ptr<void> memory = arena_ != nullptr ? arena_->allocate(bytes) : nullptr;
  number = ++allocations_;
  Allocation& got = own.allocations[number & 1];
  got.reserved = memory != nullptr;
  peers_.publish(got.number, number);
  peers_.wait_all(Counter::allocation, number, context);
  for (int peer = 0; peer < size_; ++peer) {
    if (region_.control(peer).allocations[number & 1].reserved) continue;
    if (!warned_)
      log(LogLevel::warning, "[allocate] no shared memory for ", bytes, " bytes on ", peers_.name(peer),
          "; all ranks use plain memory, which is copied more often");
    warned_ = true;
    return nullptr;
  }
  return memory;
}

}  // namespace mx::comm::shm
