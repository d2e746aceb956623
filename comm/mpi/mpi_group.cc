#include "comm/mpi/mpi_group.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <utility>

#include "comm/deadline.h"
#include "comm/fold.h"
#include "comm/mpi/mpi_heads.h"
#include "comm/mpi/mpi_thread.h"
#include "engine/base/check.h"
#include "engine/base/error.h"

namespace mx::comm {
namespace {

// The values of all ranks together may have this size in calls that MPI can do by itself, if they travel
// behind the heads.
constexpr size_t kSmallTotalBytes = 64 * 1024;

uint64_t groups_made = 0;  // equal in all processes, because they make groups in the same order

// Returns the MPI type; MPI_DATATYPE_NULL for types that MPI cannot add as this library does. MPI has no half
// types, and the vector code of Open MPI 4.1 saturates sums of 8 bits, where they must wrap.
MPI_Datatype mpi_type(Type type) {
  switch (type) {
    case Type::f32:
      return MPI_FLOAT;
    case Type::f64:
      return MPI_DOUBLE;
    case Type::i32:
      return MPI_INT32_T;
    case Type::i64:
      return MPI_INT64_T;
    case Type::i8:
    case Type::u8:
    case Type::f16:
    case Type::bf16:
      break;
  }
  return MPI_DATATYPE_NULL;
}

}  // namespace

// --- the group ---

// Their memory stays after a failure, because MPI may still write to it.
std::map<uint64_t, std::shared_ptr<MpiGroup>>& MpiGroup::living() {
  static auto& groups = *new std::map<uint64_t, std::shared_ptr<MpiGroup>>;
  return groups;
}

MpiGroup::MpiGroup() : number_(++groups_made) {
  MpiNotices::get();  // collective
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "MPI_Comm_dup");
  check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
  const auto ranks = static_cast<size_t>(size_);
  pairs_.resize(ranks);
  met_pairs_.resize(ranks);
  notices_.resize(ranks);
  seen_.resize(ranks);
  most_heads_bytes_ = std::max<size_t>(ranks, 2) * kMostHeadBytes;
  heads_.reset(new char[most_heads_bytes_]);

  char mine[MPI_MAX_PROCESSOR_NAME] = {};
  int length = 0;
  check_mpi(MPI_Get_processor_name(mine, &length), "MPI_Get_processor_name");
  std::vector<char> all(ranks * sizeof mine);
  check_mpi(MPI_Allgather(mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, comm_),
            "MPI_Allgather");
  for (size_t r = 0; r < ranks; ++r) hosts_.emplace_back(all.data() + r * sizeof mine);
}

std::shared_ptr<MpiGroup> MpiGroup::make() {
  const std::shared_ptr<MpiGroup> group(new MpiGroup);
  living().emplace(group->number_, group);
  return group;
}

/// Tells the other ranks that this one makes no more calls.
void MpiGroup::tell_end() {
  if (std::exchange(told_end_, true)) return;
  for (int r = 0; r < size_; ++r)
    if (r != rank_)
      MpiNotices::get().send(r, {number_, met_, met_pairs_[static_cast<size_t>(r)], MpiNotice::left, ""});
}

void MpiGroup::leave_all() {
  if (living().empty() || mpi_finalised()) return;
  for (const auto& [number, group] : living()) group->tell_end();
  MpiNotices::get().flush();
}

void MpiGroup::leave_idle() {
  bool told = false;
  for (const auto& [number, group] : living()) {
    if (group->told_end_ || group->calls_ > 0) continue;
    group->tell_end();
    told = true;
  }
  if (told) MpiNotices::get().flush();
}

void MpiGroup::leave() {
  if (mpi_finalised()) return;
  tell_end();
  MpiNotices::get().flush();
  living().erase(number_);
  MPI_Comm_free(&comm_);
}

void MpiGroup::fail(const std::string& reason) noexcept try {
  static bool failed = false;
  if (failed || living().empty() || mpi_finalised()) return;
  failed = true;
  for (const auto& [number, group] : living())
    for (int r = 0; r < group->size_; ++r)
      if (r != group->rank_)
        MpiNotices::get().send(
            r, {number, group->met_, group->met_pairs_[static_cast<size_t>(r)], MpiNotice::failed, reason});
  MpiNotices::get().flush();
} catch (...) {  // the reason comes first
}

// --- heads ---

void MpiGroup::begin_heads(const Request& request, uint64_t number, size_t value_bytes) {
  const CallHeader mine = CallHeader::of(request, number, 0);
  const HeadStart start{static_cast<uint32_t>(offsetof(CallHeader, text) + mine.text_bytes),
                        static_cast<uint32_t>(value_bytes), met_};
  std::memcpy(heads_.get(), &start, sizeof start);
  std::memcpy(heads_.get() + sizeof start, &mine, start.header);
  if (value_bytes > 0) std::memcpy(heads_.get() + values_offset(start), request.in, value_bytes);
  heads_bytes_ = 0;
  places_.clear();
  take_heads(1, head_bytes(start));
}

void MpiGroup::take_heads(size_t count, size_t bytes) {
  const size_t end = heads_bytes_ + bytes;
  for (size_t i = 0; i < count; ++i) {
    HeadStart start;
    if (heads_bytes_ + sizeof start <= end) start = start_of(heads_.get() + heads_bytes_);
    MX_CHECK(start.header >= offsetof(CallHeader, text) && start.header <= sizeof(CallHeader) &&
                 start.values <= kSmallBytes && head_bytes(start) <= end - heads_bytes_,
             ProtocolError, "[mpi] expected the descriptions of ", count, " calls, got ", bytes,
             " other bytes");
    places_.push_back(heads_bytes_);
    heads_bytes_ += head_bytes(start);
  }
}

CallHeader MpiGroup::header(size_t place) const {
  const char* const head = heads_.get() + places_[place];
  CallHeader header;
  std::memcpy(&header, head + sizeof(HeadStart), start_of(head).header);
  return header;
}

const char* MpiGroup::values_at(size_t place) const {
  const char* const head = heads_.get() + places_[place];
  return head + values_offset(start_of(head));
}

std::vector<const void*> MpiGroup::values() const {
  std::vector<const void*> values;
  const auto ranks = static_cast<size_t>(size_), first = ranks - static_cast<size_t>(rank_);
  for (size_t r = 0; r < ranks; ++r) values.push_back(values_at((first + r) % ranks));
  return values;
}

// In each step, every rank doubles the number of ranks whose heads it knows: its own and those behind it.
void MpiGroup::meet(const Request& request, size_t value_bytes) {
  begin_heads(request, ++collectives_, value_bytes);
  for (int known = 1; known < size_; known *= 2) {
    const int more = std::min(known, size_ - known);
    pending_.clear();
    post_receive(heads_.get() + heads_bytes_, most_heads_bytes_ - heads_bytes_, (rank_ + known) % size_,
                 kHeadTag);
    const auto sent = static_cast<size_t>(more);
    post_send(heads_.get(), sent < places_.size() ? places_[sent] : heads_bytes_,
              (rank_ + size_ - known) % size_, kHeadTag);
    wait({request, -1});
    int bytes = 0;
    check_mpi(MPI_Get_count(&statuses_[0], MPI_BYTE, &bytes), "MPI_Get_count");
    take_heads(sent, static_cast<size_t>(bytes));
  }
  met_ = collectives_;
  for (size_t place = 1; place < places_.size(); ++place)
    compare(request, header(place), (rank_ + static_cast<int>(place)) % size_);
}

void MpiGroup::meet_pair(const Request& request, size_t value_bytes) {
  const auto peer = static_cast<size_t>(request.peer);
  begin_heads(request, ++pairs_[peer], value_bytes);
  const auto early = early_heads_.extract(request.peer);
  pending_.clear();
  if (early.empty())
    post_receive(heads_.get() + heads_bytes_, most_heads_bytes_ - heads_bytes_, request.peer, kPairTag);
  post_send(heads_.get(), heads_bytes_, request.peer, kPairTag);
  wait({request, request.peer});
  int bytes = 0;
  if (early.empty()) {
    check_mpi(MPI_Get_count(&statuses_[0], MPI_BYTE, &bytes), "MPI_Get_count");
  } else {
    bytes = static_cast<int>(early.mapped().size());
    std::memcpy(heads_.get() + heads_bytes_, early.mapped().data(), early.mapped().size());
  }
  take_heads(1, static_cast<size_t>(bytes));
  met_pairs_[peer] = pairs_[peer];
  compare(request, header(1), request.peer);
}

void MpiGroup::compare(const Request& request, const CallHeader& other, int rank) const {
  const CallHeader mine = header(0);
  if (mine.matches(other)) [[likely]]
    return;
  const std::string a = mine.describe(), b = other.describe();
  throw ProtocolError(mx::detail::concat(
      "[", to_string(request.collective), "] expected the same call on all ranks, got ", a, " on ",
      name(rank_), " and ", b, " on ", name(rank), a != b ? "" : "; their names differ further behind"));
}

std::string MpiGroup::name(int rank) const {
  return mx::detail::concat("rank ", rank, " on host ", hosts_[static_cast<size_t>(rank)]);
}

// --- calls ---

void MpiGroup::execute(const Request& request) {
  MX_CHECK(!mpi_finalised(), InvalidState,
           "[mpi] expected MPI to be usable, but the program has finalised it, for ", describe(request));
  switch (request.collective) {
    case Collective::allreduce:
      return allreduce(request);
    case Collective::reduce_scatter:
      meet_for_data(request);
      return reduce_scatter(request, request.out);
    case Collective::allgather:
      return allgather(request);
    case Collective::broadcast:
      return broadcast(request);
    case Collective::all_to_all:
      meet_for_data(request);
      return all_to_all(request);
    case Collective::barrier:
      return meet(request, 0);
    case Collective::send:
    case Collective::receive:
      return message(request);
  }
}

// Data moves in calls of MPI that cannot be interrupted, so ranks that will not come are looked for once
// more.
void MpiGroup::meet_for_data(const Request& request) {
  meet(request, 0);
  read_notices();
  check_left({request, -1});
}

void MpiGroup::allreduce(const Request& request) {
  const size_t width = size_of(request.type), bytes = request.count * width;
  const bool sum = request.options.reduction == Reduction::sum;
  const bool real = request.type == Type::f32 || request.type == Type::f64;
  // MPI leaves it open what the minimum of a NaN and a number is.
  const MPI_Datatype type =
      request.options.order == Order::any && (sum || !real) ? mpi_type(request.type) : MPI_DATATYPE_NULL;
  if (bytes <= kSmallBytes &&
      (type == MPI_DATATYPE_NULL || bytes * static_cast<size_t>(size_) <= kSmallTotalBytes)) {
    meet(request, bytes);
    fold_ranks(request.out, values().data(), size_, request.count, request.type, request.options.reduction);
    return;
  }
  meet_for_data(request);
  if (type != MPI_DATATYPE_NULL) {
    MPI_Op op = MPI_SUM;
    if (request.options.reduction == Reduction::min) op = MPI_MIN;
    if (request.options.reduction == Reduction::max) op = MPI_MAX;
    for (size_t begin = 0; begin < bytes; begin += kPieceBytes) {
      const int count = static_cast<int>(std::min(kPieceBytes, bytes - begin) / width);
      const void* in = request.in == request.out ? MPI_IN_PLACE : offset_by(request.in, begin);
      check_mpi(MPI_Allreduce(in, offset_by(request.out, begin), count, type, op, comm_), "MPI_Allreduce");
    }
    return;
  }
  // The own slice is folded into its place of `out` and gathered from there.
  char* const mine = offset_by(request.out, slice_of(request.count, size_, rank_).begin * width);
  reduce_scatter(request, mine);
  gather(request, mine);
}

// Receives the own slice from every rank and folds it.
void MpiGroup::reduce_scatter(const Request& request, void* out) {
  const size_t width = size_of(request.type);
  const Slice mine = slice_of(request.count, size_, rank_);
  char* const received = workspace(static_cast<size_t>(size_) * mine.count * width);
  std::vector<Part> parts = parts_of_slices(request, rank_, size_, request.in, received);
  std::vector<const void*> values;
  for (const Part& part : parts) values.push_back(part.peer == rank_ ? part.in : part.out);
  // The own slice is folded from where it is.
  std::erase_if(parts, [this](const Part& part) { return part.peer == rank_; });
  exchange(request, parts);
  fold_ranks(out, values.data(), size_, mine.count, request.type, request.options.reduction);
}

// The own slice may lie anywhere in `out`, where the other slices will be received, so it moves to its place
// first.
void MpiGroup::gather(const Request& request, const void* in) {
  const size_t width = size_of(request.type);
  const Slice mine = slice_of(request.count, size_, rank_);
  char* const place = offset_by(request.out, mine.begin * width);
  if (in != place && mine.count > 0) std::memmove(place, in, mine.count * width);
  exchange(request, parts_of_gather(request, rank_, size_, place, request.out));
}

void MpiGroup::allgather(const Request& request) {
  const size_t width = size_of(request.type);
  if (request.count * width > kSmallBytes) {
    meet_for_data(request);
    return gather(request, request.in);
  }
  meet(request, slice_of(request.count, size_, rank_).count * width);
  const std::vector<const void*> slices = values();
  for (int r = 0; r < size_; ++r) {
    const Slice slice = slice_of(request.count, size_, r);
    if (slice.count > 0)
      std::memcpy(offset_by(request.out, slice.begin * width), slices[static_cast<size_t>(r)],
                  slice.count * width);
  }
}

void MpiGroup::broadcast(const Request& request) {
  const size_t bytes = request.count * size_of(request.type);
  if (bytes <= kSmallBytes) {
    meet(request, rank_ == request.peer ? bytes : 0);
    if (bytes > 0) std::memcpy(request.out, values()[static_cast<size_t>(request.peer)], bytes);
    return;
  }
  meet_for_data(request);
  if (rank_ == request.peer && request.in != request.out) std::memcpy(request.out, request.in, bytes);
  for (size_t begin = 0; begin < bytes; begin += kPieceBytes)
    check_mpi(MPI_Bcast(offset_by(request.out, begin), static_cast<int>(std::min(kPieceBytes, bytes - begin)),
                        MPI_BYTE, request.peer, comm_),
              "MPI_Bcast");
}

// The sender waits for the receiver, because both must learn of a mismatch.
void MpiGroup::message(const Request& request) {
  const size_t bytes = request.count * size_of(request.type);
  const bool sends = request.collective == Collective::send, small = bytes <= kSmallBytes;
  meet_pair(request, sends && small ? bytes : 0);
  if (!small)
    exchange(request, {sends ? Part{request.in, nullptr, bytes, 0, request.peer}
                             : Part{nullptr, request.out, 0, bytes, request.peer}});
  else if (!sends && bytes > 0)
    std::memcpy(request.out, values_at(1), bytes);
}

void MpiGroup::all_to_all(const Request& request) {
  const size_t bytes = request.count * size_of(request.type);
  const void* in = request.in;
  if (request.in == request.out) {
    const size_t all = static_cast<size_t>(size_) * bytes;
    if (all > 0) std::memcpy(workspace(all), request.in, all);
    in = workspace_.data();
  }
  exchange(request, parts_of_all_to_all(request, size_, in, request.out));
}

// Sends and receives all parts at once, in pieces. Copies the part of this rank with itself.
void MpiGroup::exchange(const Request& request, const std::vector<Part>& parts) {
  pending_.clear();
  for (const Part& part : parts) {
    if (part.peer == rank_) {
      if (part.in != part.out && part.in_bytes > 0) std::memmove(part.out, part.in, part.in_bytes);
      continue;
    }
    for (size_t begin = 0; begin < part.out_bytes; begin += kPieceBytes)
      post_receive(offset_by(part.out, begin), std::min(kPieceBytes, part.out_bytes - begin), part.peer,
                   kDataTag);
  }
  for (const Part& part : parts) {
    if (part.peer == rank_) continue;
    for (size_t begin = 0; begin < part.in_bytes; begin += kPieceBytes)
      post_send(offset_by(part.in, begin), std::min(kPieceBytes, part.in_bytes - begin), part.peer, kDataTag);
  }
  wait({request, -1, true});
}

char* MpiGroup::workspace(size_t bytes) {
  if (workspace_.size() < bytes) workspace_.resize(bytes);
  return workspace_.data();
}

}  // namespace mx::comm
