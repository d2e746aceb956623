// How the data of collectives moves: by slots, directly in the arena, or staged (see group.h).
#include <algorithm>
#include <array>
#include <cstring>

#include "comm/fold.h"
#include "comm/shm/group.h"

namespace mx::comm::shm {
namespace {

// Bytes that are combined in one piece: the results of a piece stay in the first-level cache until they have
// been copied to all ranks.
constexpr size_t kPieceBytes = 8 * 1024;

// The part of rank `rank` in work that all ranks share. Parts begin at whole cache lines (of aligned
// buffers), so that two ranks do not write the same line.
Slice part_of(size_t count, size_t element, int size, int rank) {
  const size_t line = kLine / element;
  const Slice lines = slice_of((count + line - 1) / line, size, rank);
  const size_t begin = std::min(lines.begin * line, count);
  return {begin, std::min((lines.begin + lines.count) * line, count) - begin};
}

// Copies page by page: for long copies the C library may use stores that bypass the caches, from which
// another rank is about to read.
void copy(void* to, const void* from, size_t bytes) {
  if (to == from) return;
  for (size_t done = 0; done < bytes; done += kPage)
    std::memcpy(static_cast<char*>(to) + done, static_cast<const char*>(from) + done,
                std::min(kPage, bytes - done));
}

// Chunk `index` of `count` elements, each chunk but the last of `each`.
Slice chunk_of(size_t count, size_t each, size_t index) {
  const size_t begin = std::min(index * each, count);
  return {begin, std::min(each, count - begin)};
}

// Elements per chunk if at most `most` fit a buffer. Every step costs a wait, so chunks are as long as the
// buffers.
size_t chunk_elements(size_t count, size_t element, size_t most) {
  const size_t line = kLine / element;
  return std::min((count + line - 1) / line * line, most);
}

}  // namespace

void Group::combine_slots(const Call& call) {
  const Request& q = call.request;
  char* const out = static_cast<char*>(q.out);
  const size_t bytes = q.count * call.element;
  const auto slot = [&](int rank) { return region_.slot(rank, number_); };
  switch (q.collective) {
    case Collective::allreduce:
    case Collective::reduce_scatter: {
      Slice slice{0, q.count};
      if (q.collective == Collective::reduce_scatter) slice = slice_of(q.count, size_, rank_);
      for (int r = 0; r < size_; ++r) inputs_[static_cast<size_t>(r)] = slot(r) + slice.begin * call.element;
      if (slice.count > 0) fold_ranks(out, inputs_.data(), size_, slice.count, q.type, q.options.reduction);
      return;
    }
    case Collective::allgather:
      for (int r = 0; r < size_; ++r) {
        const Slice slice = slice_of(q.count, size_, r);
        copy(out + slice.begin * call.element, slot(r), slice.count * call.element);
      }
      return;
    case Collective::broadcast:
      return copy(out, slot(q.peer), bytes);
    case Collective::all_to_all:
      for (int r = 0; r < size_; ++r)
        copy(out + static_cast<size_t>(r) * bytes, slot(r) + static_cast<size_t>(rank_) * bytes, bytes);
      return;
    default:
      return;
  }
}

template <class Stage, class Combine>
void Group::exchange(const Call& call, size_t chunks, const Stage& stage, const Combine& combine) {
  // A rank publishes a chunk as soon as it is staged, so others need not wait until it has combined the one
  // before. A rank that has staged chunk t - 1 has combined chunk t - 3, so of three buffers that of chunk t
  // is free.
  for (size_t t = 0; t <= chunks; ++t) {
    if (t > 0) peers_.wait_all(Counter::phase, phase_, call.context);
    if (t < chunks) {
      stage(t);
      peers_.publish(region_.control(rank_).phase, ++phase_);
    }
    if (t > 0) combine(t - 1);
  }
}

template <class Stage, class Combine, class Gather>
void Group::exchange_and_gather(const Call& call, size_t chunks, const Stage& stage, const Combine& combine,
                                const Gather& gather) {
  // A wait at the end of step t shows that all ranks have ended it. So in step t + 1 the buffers that hold
  // chunk t - 1 (staged) and t - 2 (combined) are free: they were used up in step t.
  const size_t steps = chunks + 2;
  for (size_t t = 0; t < steps; ++t) {
    if (t > 0) peers_.wait_all(Counter::phase, phase_, call.context);
    if (t < chunks) stage(t);
    if (t >= 1 && t - 1 < chunks) combine(t - 1);
    if (t >= 2) gather(t - 2);
    if (t + 1 < steps) peers_.publish(region_.control(rank_).phase, ++phase_);
  }
}

void Group::allreduce_direct(const Call& call) {
  const Request& q = call.request;
  const size_t bytes = q.count * call.element;
  const Slice part = part_of(q.count, call.element, size_, rank_);
  const size_t piece = kPieceBytes / call.element;
  alignas(kLine) std::array<char, kPieceBytes> sum;
  for (size_t done = 0; done < part.count; done += piece) {
    const size_t count = std::min(piece, part.count - done);
    const size_t at = (part.begin + done) * call.element;
    for (int r = 0; r < size_; ++r) inputs_[static_cast<size_t>(r)] = arena_in(r, bytes) + at;
    fold_ranks(sum.data(), inputs_.data(), size_, count, q.type, q.options.reduction);
    for (int r = 0; r < size_; ++r) std::memcpy(arena_out(r, bytes) + at, sum.data(), count * call.element);
  }
  meet(call);
}

void Group::allreduce_staged(const Call& call) {
  if (size_ == 2) return allreduce_staged_by_two(call);
  const Request& q = call.request;
  const char* const in = static_cast<const char*>(q.in);
  char* const out = static_cast<char*>(q.out);
  const size_t element = call.element;
  const size_t each = chunk_elements(q.count, element, kStageBytes / element);
  exchange_and_gather(
      call, (q.count + each - 1) / each,
      [&](size_t c) {  // all but this rank's own part, which no other rank combines
        const Slice chunk = chunk_of(q.count, each, c);
        const Slice own = part_of(chunk.count, element, size_, rank_);
        const char* const from = in + chunk.begin * element;
        char* const stage = region_.stage(rank_, c);
        copy(stage, from, own.begin * element);
        const size_t end = (own.begin + own.count) * element;
        copy(stage + end, from + end, chunk.count * element - end);
      },
      [&](size_t c) {
        const Slice chunk = chunk_of(q.count, each, c);
        const Slice own = part_of(chunk.count, element, size_, rank_);
        for (int r = 0; r < size_; ++r)
          inputs_[static_cast<size_t>(r)] = r == rank_ ? in + (chunk.begin + own.begin) * element
                                                       : region_.stage(r, c) + own.begin * element;
        if (own.count > 0)
          fold_ranks(region_.result(rank_, c), inputs_.data(), size_, own.count, q.type, q.options.reduction);
      },
      [&](size_t c) {
        const Slice chunk = chunk_of(q.count, each, c);
        for (int r = 0; r < size_; ++r) {
          const Slice part = part_of(chunk.count, element, size_, r);
          copy(out + (chunk.begin + part.begin) * element, region_.result(r, c), part.count * element);
        }
      });
}

// Of two ranks, each folds all. That moves as many bytes between the processors as if each folded a half and
// passed on the result, with one step less.
void Group::allreduce_staged_by_two(const Call& call) {
  const Request& q = call.request;
  const char* const in = static_cast<const char*>(q.in);
  char* const out = static_cast<char*>(q.out);
  const size_t element = call.element;
  const size_t each = chunk_elements(q.count, element, kStageBytes / element);
  const size_t chunks = (q.count + each - 1) / each;
  exchange(
      call, chunks,
      [&](size_t c) {
        const Slice chunk = chunk_of(q.count, each, c);
        copy(region_.staging(rank_, c), in + chunk.begin * element, chunk.count * element);
      },
      [&](size_t c) {
        const Slice chunk = chunk_of(q.count, each, c);
        for (int r = 0; r < size_; ++r)
          inputs_[static_cast<size_t>(r)] = r == rank_ ? in + chunk.begin * element : region_.staging(r, c);
        fold_ranks(out + chunk.begin * element, inputs_.data(), size_, chunk.count, q.type,
                   q.options.reduction);
      });
}

void Group::reduce_scatter_direct(const Call& call) {
  const Request& q = call.request;
  const size_t bytes = q.count * call.element;
  const Slice slice = slice_of(q.count, size_, rank_);
  for (int r = 0; r < size_; ++r)
    inputs_[static_cast<size_t>(r)] = arena_in(r, bytes) + slice.begin * call.element;
  if (slice.count > 0) fold_ranks(q.out, inputs_.data(), size_, slice.count, q.type, q.options.reduction);
  meet(call);
}

void Group::reduce_scatter_staged(const Call& call) {
  const Request& q = call.request;
  const char* const in = static_cast<const char*>(q.in);
  char* const out = static_cast<char*>(q.out);
  const size_t element = call.element;
  const size_t longest = slice_of(q.count, size_, 0).count;
  // Chunk c is the same piece of all slices; the staging buffer holds the pieces of all ranks side by side.
  const size_t each = chunk_elements(longest, element, kStageBytes / element / static_cast<size_t>(size_));
  exchange(
      call, (longest + each - 1) / each,
      [&](size_t c) {
        for (int r = 0; r < size_; ++r) {
          const Slice slice = slice_of(q.count, size_, r);
          const Slice chunk = chunk_of(slice.count, each, c);
          if (r != rank_)
            copy(region_.staging(rank_, c) + static_cast<size_t>(r) * each * element,
                 in + (slice.begin + chunk.begin) * element, chunk.count * element);
        }
      },
      [&](size_t c) {
        const Slice slice = slice_of(q.count, size_, rank_);
        const Slice chunk = chunk_of(slice.count, each, c);
        for (int r = 0; r < size_; ++r)
          inputs_[static_cast<size_t>(r)] =
              r == rank_ ? in + (slice.begin + chunk.begin) * element
                         : region_.staging(r, c) + static_cast<size_t>(rank_) * each * element;
        // Into the place of earlier chunks only, because out may be the first slice of in.
        if (chunk.count > 0)
          fold_ranks(out + chunk.begin * element, inputs_.data(), size_, chunk.count, q.type,
                     q.options.reduction);
      });
}

void Group::allgather_direct(const Call& call) {
  const Request& q = call.request;
  const size_t bytes = q.count * call.element;
  const Slice slice = slice_of(q.count, size_, rank_);
  for (int r = 0; r < size_; ++r)
    copy(arena_out(r, bytes) + slice.begin * call.element, q.in, slice.count * call.element);
  meet(call);
}

void Group::allgather_staged(const Call& call) {
  const Request& q = call.request;
  const char* const in = static_cast<const char*>(q.in);
  char* const out = static_cast<char*>(q.out);
  const size_t element = call.element;
  const size_t longest = slice_of(q.count, size_, 0).count;
  const size_t each = chunk_elements(longest, element, kStageBytes / element);
  exchange(
      call, (longest + each - 1) / each,
      [&](size_t c) {
        const Slice slice = slice_of(q.count, size_, rank_);
        const Slice chunk = chunk_of(slice.count, each, c);
        copy(region_.staging(rank_, c), in + chunk.begin * element, chunk.count * element);
        copy(out + (slice.begin + chunk.begin) * element, in + chunk.begin * element, chunk.count * element);
      },
      [&](size_t c) {
        for (int r = 0; r < size_; ++r) {
          const Slice slice = slice_of(q.count, size_, r);
          const Slice chunk = chunk_of(slice.count, each, c);
          if (r != rank_)
            copy(out + (slice.begin + chunk.begin) * element, region_.staging(r, c), chunk.count * element);
        }
      });
}

void Group::broadcast(const Call& call) {
  const Request& q = call.request;
  char* const out = static_cast<char*>(q.out);
  const size_t bytes = q.count * call.element;
  if (const char* const source = arena_in(q.peer, bytes); source != nullptr && all_have_arena()) {
    copy(out, source, bytes);
    return meet(call);
  }
  const bool root = rank_ == q.peer;
  const size_t each = chunk_elements(bytes, 1, kStageBytes);
  exchange(
      call, (bytes + each - 1) / each,
      [&](size_t c) {
        const Slice chunk = chunk_of(bytes, each, c);
        if (!root) return;
        const char* const from = static_cast<const char*>(q.in) + chunk.begin;
        copy(region_.staging(rank_, c), from, chunk.count);
        copy(out + chunk.begin, from, chunk.count);
      },
      [&](size_t c) {
        const Slice chunk = chunk_of(bytes, each, c);
        if (!root) copy(out + chunk.begin, region_.staging(q.peer, c), chunk.count);
      });
}

void Group::all_to_all_direct(const Call& call) {
  const Request& q = call.request;
  const size_t bytes = q.count * call.element;
  for (int r = 0; r < size_; ++r)
    copy(static_cast<char*>(q.out) + static_cast<size_t>(r) * bytes,
         arena_in(r, bytes * static_cast<size_t>(size_)) + static_cast<size_t>(rank_) * bytes, bytes);
  meet(call);
}

void Group::all_to_all_staged(const Call& call) {
  const Request& q = call.request;
  const char* const in = static_cast<const char*>(q.in);
  char* const out = static_cast<char*>(q.out);
  const size_t block = q.count * call.element;
  const size_t each = chunk_elements(block, 1, kStageBytes / static_cast<size_t>(size_) / kLine * kLine);
  // Where a chunk lies in the block for, or from, a rank; and where a rank stages it for another.
  const auto place = [&](int peer, Slice chunk) { return static_cast<size_t>(peer) * block + chunk.begin; };
  const auto staged = [&](int from, int to, size_t c) {
    return region_.staging(from, c) + static_cast<size_t>(to) * each;
  };
  exchange(
      call, (block + each - 1) / each,
      [&](size_t c) {
        const Slice chunk = chunk_of(block, each, c);
        for (int r = 0; r < size_; ++r)
          copy(r == rank_ ? out + place(r, chunk) : staged(rank_, r, c), in + place(r, chunk), chunk.count);
      },
      [&](size_t c) {
        const Slice chunk = chunk_of(block, each, c);
        for (int r = 0; r < size_; ++r)
          if (r != rank_) copy(out + place(r, chunk), staged(r, rank_, c), chunk.count);
      });
}

}  // namespace mx::comm::shm
