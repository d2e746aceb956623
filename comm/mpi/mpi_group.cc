#include "comm/mpi/mpi_group.h"

#include <algorithm>
#include <cstring>

#include "comm/fold.h"
#include "comm/mpi/mpi_thread.h"
#include "engine/base/check.h"

namespace mx::comm {
namespace {

// Messages are cut to pieces of this size, because MPI counts in int.
constexpr size_t kPieceBytes = size_t{1} << 30;
// Up to this size, values are gathered whole from all ranks.
constexpr size_t kSmallBytes = 16 * 1024;
// Calls of Order::any below this size are not compared.
constexpr size_t kUnchecked = 64 * 1024;

// The text that the ranks compare, with zeros at its end.
struct Description {
  explicit Description(const Request& request) {
    const std::string full = describe(request);
    std::memcpy(text, full.data(), std::min(full.size(), sizeof text - 1));
  }
  char text[160] = {};
};

void check_equal(const char* mine, const char* others, int rank, int size) {
  for (int r = 0; r < size; ++r) {
    const char* other = others + static_cast<size_t>(r) * sizeof(Description);
    if (std::memcmp(mine, other, sizeof(Description)) != 0)
      throw ProtocolError(mx::detail::concat("[mpi] expected equal calls on all ranks, got ", mine,
                                             " on rank ", rank, " and ", other, " on rank ", r));
  }
}

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

MpiGroup::MpiGroup() {
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "MPI_Comm_dup");
  check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
}

void MpiGroup::free() {
  if (!mpi_finalised()) MPI_Comm_free(&comm_);
}

std::vector<std::string> MpiGroup::hosts() {
  char mine[MPI_MAX_PROCESSOR_NAME] = {};
  int length = 0;
  check_mpi(MPI_Get_processor_name(mine, &length), "MPI_Get_processor_name");
  std::vector<char> all(static_cast<size_t>(size_) * sizeof mine);
  check_mpi(MPI_Allgather(mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, comm_),
            "MPI_Allgather");
  std::vector<std::string> hosts;
  for (int r = 0; r < size_; ++r) hosts.emplace_back(all.data() + static_cast<size_t>(r) * sizeof mine);
  return hosts;
}

char* MpiGroup::workspace(size_t bytes) {
  if (workspace_.size() < bytes) workspace_.resize(bytes);
  return workspace_.data();
}

void MpiGroup::execute(const Request& request) {
  MX_CHECK(!mpi_finalised(), InvalidState,
           "[mpi] expected MPI to be usable, but the program has finalised it, for ", describe(request));
  switch (request.collective) {
    case Collective::allreduce:
      return allreduce(request);
    case Collective::reduce_scatter:
      compare(request);
      return reduce_scatter(request, request.out);
    case Collective::allgather:
      compare(request);
      return allgather(request, request.in);
    case Collective::broadcast:
      return broadcast(request);
    case Collective::all_to_all:
      compare(request);
      return all_to_all(request);
    case Collective::barrier:
      return check_mpi(MPI_Barrier(comm_), "MPI_Barrier");
    case Collective::send:
      return exchange({{request.in, nullptr, request.count * size_of(request.type), 0, request.peer}});
    case Collective::receive:
      return exchange({{nullptr, request.out, 0, request.count * size_of(request.type), request.peer}});
  }
}

void MpiGroup::compare(const Request& request) {
  const Description mine(request);
  std::vector<char> all(static_cast<size_t>(size_) * sizeof mine);
  check_mpi(MPI_Allgather(mine.text, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, comm_),
            "MPI_Allgather");
  check_equal(mine.text, all.data(), rank_, size_);
}

void MpiGroup::allreduce(const Request& request) {
  const size_t width = size_of(request.type), bytes = request.count * width;
  const MPI_Datatype type = mpi_type(request.type);
  if (request.options.order == Order::any && type != MPI_DATATYPE_NULL) {
    if (bytes >= kUnchecked) compare(request);
    MPI_Op op = MPI_SUM;
    if (request.options.reduction == Reduction::min) op = MPI_MIN;
    if (request.options.reduction == Reduction::max) op = MPI_MAX;
    for (size_t begin = 0; begin < bytes; begin += kPieceBytes) {
      const int count = static_cast<int>(std::min(kPieceBytes, bytes - begin) / width);
      const void* in = request.in == request.out ? MPI_IN_PLACE : offset_by(request.in, begin);
      check_mpi(MPI_Allreduce(in, offset_by(request.out, begin), count, type, op, comm_), "MPI_Allreduce");
    }
  } else if (bytes <= kSmallBytes) {
    fold_small(request);
  } else {
    compare(request);
    // The own slice is folded into its place of `out` and gathered from there.
    char* const mine = offset_by(request.out, slice_of(request.count, size_, rank_).begin * width);
    reduce_scatter(request, mine);
    allgather(request, mine);
  }
}

// Gathers description and values of all ranks in one message, then folds them.
void MpiGroup::fold_small(const Request& request) {
  const size_t bytes = request.count * size_of(request.type), each = sizeof(Description) + bytes;
  const size_t ranks = static_cast<size_t>(size_);
  char* const mine = workspace((ranks + 1) * each + ranks * sizeof(Description));
  char* const all = mine + each;
  const Description description(request);
  std::memcpy(mine, description.text, sizeof description);
  if (bytes > 0) std::memcpy(mine + sizeof description, request.in, bytes);
  check_mpi(
      MPI_Allgather(mine, static_cast<int>(each), MPI_BYTE, all, static_cast<int>(each), MPI_BYTE, comm_),
      "MPI_Allgather");
  char* const texts = all + ranks * each;
  std::vector<const void*> values;
  for (size_t r = 0; r < ranks; ++r) {
    std::memcpy(texts + r * sizeof description, all + r * each, sizeof description);
    values.push_back(all + r * each + sizeof description);
  }
  check_equal(description.text, texts, rank_, size_);
  fold_ranks(request.out, values.data(), size_, request.count, request.type, request.options.reduction);
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
  exchange(parts);
  fold_ranks(out, values.data(), size_, mine.count, request.type, request.options.reduction);
}

void MpiGroup::allgather(const Request& request, const void* in) {
  exchange(parts_of_gather(request, rank_, size_, in, request.out));
}

void MpiGroup::broadcast(const Request& request) {
  compare(request);
  const size_t bytes = request.count * size_of(request.type);
  if (rank_ == request.peer && request.in != request.out && bytes > 0)
    std::memcpy(request.out, request.in, bytes);
  for (size_t begin = 0; begin < bytes; begin += kPieceBytes)
    check_mpi(MPI_Bcast(offset_by(request.out, begin), static_cast<int>(std::min(kPieceBytes, bytes - begin)),
                        MPI_BYTE, request.peer, comm_),
              "MPI_Bcast");
}

void MpiGroup::all_to_all(const Request& request) {
  const size_t bytes = request.count * size_of(request.type);
  const void* in = request.in;
  if (request.in == request.out) {
    const size_t all = static_cast<size_t>(size_) * bytes;
    if (all > 0) std::memcpy(workspace(all), request.in, all);
    in = workspace_.data();
  }
  exchange(parts_of_all_to_all(request, size_, in, request.out));
}

// Sends and receives all parts at once, in pieces. Copies the part of this rank with itself.
void MpiGroup::exchange(const std::vector<Part>& parts) {
  pending_.clear();
  for (const Part& part : parts) {
    if (part.peer == rank_) {
      if (part.in != part.out && part.in_bytes > 0) std::memmove(part.out, part.in, part.in_bytes);
      continue;
    }
    for (size_t begin = 0; begin < part.out_bytes; begin += kPieceBytes) {
      const int count = static_cast<int>(std::min(kPieceBytes, part.out_bytes - begin));
      pending_.emplace_back();
      check_mpi(MPI_Irecv(offset_by(part.out, begin), count, MPI_BYTE, part.peer, 0, comm_, &pending_.back()),
                "MPI_Irecv");
    }
  }
  for (const Part& part : parts) {
    if (part.peer == rank_) continue;
    for (size_t begin = 0; begin < part.in_bytes; begin += kPieceBytes) {
      const int count = static_cast<int>(std::min(kPieceBytes, part.in_bytes - begin));
      pending_.emplace_back();
      check_mpi(MPI_Isend(offset_by(part.in, begin), count, MPI_BYTE, part.peer, 0, comm_, &pending_.back()),
                "MPI_Isend");
    }
  }
  const int code = MPI_Waitall(static_cast<int>(pending_.size()), pending_.data(), MPI_STATUSES_IGNORE);
  check_mpi(code, "MPI_Waitall");
}

}  // namespace mx::comm
