// The algorithms of allreduce and reduce_scatter.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "comm/algorithms.h"
#include "comm/fold.h"

namespace mx::comm {

namespace {

void fold_inputs(Call& call, void* to, const std::vector<const void*>& inputs, size_t count) {
  fold_ranks(to, inputs.data(), static_cast<int>(inputs.size()), count, call.request().type,
             call.request().options.reduction);
}

// A piece of a slice of a rank. All ranks cut all slices into equally many pieces.
Slice piece_of(Slice slice, size_t pieces, size_t piece) {
  const Slice part = slice_of(slice.count, static_cast<int>(pieces), static_cast<int>(piece));
  return {slice.begin + part.begin, part.count};
}

size_t pieces_of(size_t bytes) {
  return std::clamp<size_t>((bytes + kPieceBytes - 1) / kPieceBytes, 1, 1 << 20);
}

// The distance between buffers in the workspace, so that each begins at a cache line.
size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

bool overlaps(const unsigned char* a, size_t a_bytes, const unsigned char* b, size_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

// The direct exchange among some ranks, of which `me` is the number of this one: each gets its slice from
// all, folds it into `result`, and, if `share`, sends the result to all.
class DirectExchange {
 public:
  DirectExchange(Call& call, const std::vector<int>& ranks, size_t me, const unsigned char* in,
                 unsigned char* out, unsigned char* result, bool share, unsigned char* scratch)
      : call_(call),
        ranks_(ranks),
        me_(me),
        in_(in),
        out_(out),
        result_(result),
        share_(share),
        pieces_(pieces_of(call.bytes(slice(0).count))),
        piece_bytes_(aligned(call.bytes(piece_of(slice(0), pieces_, 0).count))),
        scratch_(scratch),
        tickets_(call.workspace().tickets) {}

  /// Bytes of scratch memory that an exchange of `count` elements needs.
  static size_t scratch_bytes(const Call& call, size_t ranks) {
    const Slice largest = slice_of(call.request().count, static_cast<int>(ranks), 0);
    return 2 * ranks * aligned(call.bytes(piece_of(largest, pieces_of(call.bytes(largest.count)), 0).count));
  }

  void run() {
    tickets_.assign(2 * ranks_.size(), 0);
    post_inputs(0);
    for (size_t piece = 0; piece < pieces_; ++piece) {
      if (piece + 1 < pieces_) post_inputs(piece + 1);
      fold_piece(piece);
    }
    call_.finish();
  }

 private:
  Slice slice(size_t member) const {
    return slice_of(call_.request().count, static_cast<int>(ranks_.size()), static_cast<int>(member));
  }
  Slice piece(size_t member, size_t number) const { return piece_of(slice(member), pieces_, number); }
  // Two pieces per rank: one is folded while the other arrives.
  unsigned char* arrived(size_t member, size_t number) const {
    return scratch_ + (number % 2 * ranks_.size() + member) * piece_bytes_;
  }
  Call::Ticket& ticket(size_t member, size_t number) { return tickets_[number % 2 * ranks_.size() + member]; }

  void post_inputs(size_t number) {
    const Slice mine = piece(me_, number);
    for (size_t step = 1; step < ranks_.size(); ++step) {
      const size_t to = (me_ + step) % ranks_.size(), from = (me_ + ranks_.size() - step) % ranks_.size();
      const Slice theirs = piece(to, number);
      call_.send(ranks_[to], in_ + call_.bytes(theirs.begin), call_.bytes(theirs.count));
      ticket(from, number) = call_.receive(ranks_[from], arrived(from, number), call_.bytes(mine.count));
    }
  }

  void fold_piece(size_t number) {
    const Slice mine = piece(me_, number);
    auto& inputs = call_.workspace().inputs;
    inputs.clear();
    for (size_t member = 0; member < ranks_.size(); ++member) {
      if (member != me_) call_.await(ranks_[member], ticket(member, number));
      inputs.push_back(member == me_ ? in_ + call_.bytes(mine.begin) : arrived(member, number));
    }
    unsigned char* const to = result_ + call_.bytes(mine.begin - slice(me_).begin);
    fold_inputs(call_, to, inputs, mine.count);
    if (!share_) return;
    // The owner of a slice sends its result only after it has received this rank's part of it, which may lie
    // in the same place.
    for (size_t step = 1; step < ranks_.size(); ++step) {
      const size_t peer = (me_ + step) % ranks_.size(), from = (me_ + ranks_.size() - step) % ranks_.size();
      const Slice theirs = piece(from, number);
      call_.send(ranks_[peer], to, call_.bytes(mine.count));
      call_.receive(ranks_[from], out_ + call_.bytes(theirs.begin), call_.bytes(theirs.count));
    }
  }

  Call& call_;
  const std::vector<int>& ranks_;
  const size_t me_;
  const unsigned char* const in_;
  unsigned char *const out_, *const result_;
  const bool share_;
  const size_t pieces_, piece_bytes_;
  unsigned char* const scratch_;
  std::vector<Call::Ticket>& tickets_;
};

// Finds out which ranks share a machine. That does not change, so once is enough.
void find_machines(Call& call) {
  Workspace& workspace = call.workspace();
  if (!workspace.mine.empty()) return;
  std::vector<std::string> machines;
  std::vector<int> leaders, mine;
  for (int rank = 0; rank < call.size(); ++rank) {
    std::string machine = call.transport().machine(rank);
    if (machine == call.transport().machine(call.rank())) mine.push_back(rank);
    if (std::find(machines.begin(), machines.end(), machine) != machines.end()) continue;
    machines.push_back(std::move(machine));
    leaders.push_back(rank);
  }
  workspace.leaders = std::move(leaders);
  workspace.mine = std::move(mine);
}

// Posts the header and, behind it, `bytes` bytes for each rank, receives as many from each into the workspace
// and compares the headers. `data(rank)` is what that rank gets. Returns where the bytes of rank 0 are; those
// of the next ranks follow at distances of `stride`.
template <class Data>
unsigned char* exchange_joined(Call& call, size_t send_stride, size_t receive_bytes, Data data) {
  unsigned char* const scratch = call.workspace().scratch(send_stride * static_cast<size_t>(call.size()));
  for (int step = 1; step < call.size(); ++step) {
    const int to = (call.rank() + step) % call.size(),
              from = (call.rank() + call.size() - step) % call.size();
    call.send_header(to);
    const auto [pointer, bytes] = data(to);
    call.send(to, pointer, bytes);
    call.receive_header(from);
    call.receive(from, scratch + static_cast<size_t>(from) * send_stride, receive_bytes);
  }
  call.check_headers();
  call.finish();
  return scratch;
}

}  // namespace

void allreduce_gather(Call& call) {
  const size_t bytes = call.bytes(call.request().count);
  const size_t stride = aligned(bytes);
  unsigned char* const scratch = exchange_joined(
      call, stride, bytes, [&](int) { return std::pair<const void*, size_t>(call.in(), bytes); });
  auto& inputs = call.workspace().inputs;
  inputs.clear();
  for (int rank = 0; rank < call.size(); ++rank)
    inputs.push_back(rank == call.rank() ? call.in() : scratch + static_cast<size_t>(rank) * stride);
  fold_inputs(call, call.out(), inputs, call.request().count);
}

void allreduce_direct(Call& call) {
  call.exchange_headers();
  const std::vector<int>& ranks = call.workspace().all;
  const size_t me = static_cast<size_t>(call.rank());
  unsigned char* const scratch =
      call.workspace().scratch(DirectExchange::scratch_bytes(call, static_cast<size_t>(call.size())));
  DirectExchange(call, ranks, me, call.in(), call.out(), call.out(call.slice(call.rank()).begin), true,
                 scratch)
      .run();
}

void reduce_scatter_direct(Call& call) {
  const Slice mine = call.slice(call.rank());
  const size_t bytes = call.bytes(mine.count);
  const size_t largest = call.bytes(call.slice(0).count);
  if (largest <= kJoinedBytes) {
    const size_t stride = aligned(largest);
    unsigned char* const scratch = exchange_joined(call, stride, bytes, [&](int rank) {
      const Slice theirs = call.slice(rank);
      return std::pair<const void*, size_t>(call.in(theirs.begin), call.bytes(theirs.count));
    });
    auto& inputs = call.workspace().inputs;
    inputs.clear();
    // Folded within the workspace, because the output may overlap the input.
    unsigned char* const own = scratch + static_cast<size_t>(call.rank()) * stride;
    if (bytes > 0) std::memcpy(own, call.in(mine.begin), bytes);
    for (int rank = 0; rank < call.size(); ++rank)
      inputs.push_back(scratch + static_cast<size_t>(rank) * stride);
    fold_inputs(call, call.out(), inputs, mine.count);
    return;
  }
  call.exchange_headers();
  const std::vector<int>& ranks = call.workspace().all;
  const size_t needed = DirectExchange::scratch_bytes(call, ranks.size());
  // An output within the input, other than in the place of this rank's slice, would overwrite what is yet to
  // be sent.
  const bool aside = call.out() != call.in(mine.begin) &&
                     overlaps(call.out(), bytes, call.in(), call.bytes(call.request().count));
  unsigned char* const scratch = call.workspace().scratch(needed + (aside ? bytes : 0));
  unsigned char* const result = aside ? scratch + needed : call.out();
  DirectExchange(call, ranks, static_cast<size_t>(call.rank()), call.in(), nullptr, result, false, scratch)
      .run();
  if (aside) std::memcpy(call.out(), result, bytes);
}

void allreduce_ring(Call& call) {
  call.exchange_headers();
  const int n = call.size(), me = call.rank(), next = (me + 1) % n, previous = (me + n - 1) % n;
  const size_t bytes = call.bytes(call.request().count);
  const size_t largest = call.bytes(call.slice(0).count), pieces = pieces_of(largest);
  if (bytes > 0 && call.out() != call.in()) std::memcpy(call.out(), call.in(), bytes);
  // Two slices: while the pieces of one are folded, those of the next arrive.
  const size_t stride = aligned(largest);
  unsigned char* const scratch = call.workspace().scratch(2 * stride);
  auto& tickets = call.workspace().tickets;
  tickets.assign(2 * pieces, 0);
  const auto slice_at = [&](int step) { return call.slice(((me - step) % n + n) % n); };  // sent in this step
  const auto place = [&](int step, size_t p) {
    return scratch + static_cast<size_t>(step % 2) * stride +
           call.bytes(piece_of(slice_at(step + 1), pieces, p).begin - slice_at(step + 1).begin);
  };
  const auto send = [&](int step, size_t p) {
    const Slice piece = piece_of(slice_at(step), pieces, p);
    call.send(next, call.out(piece.begin), call.bytes(piece.count));
  };
  // Steps 0 to n - 2 fold, n - 1 to 2n - 3 pass the results on. Every piece is sent on as soon as it is
  // complete.
  const auto post_receives = [&](int step) {
    const bool folds = step < n - 1;
    for (size_t p = 0; p < pieces; ++p) {
      const Slice piece = piece_of(slice_at(step + 1), pieces, p);
      tickets[static_cast<size_t>(step % 2) * pieces + p] =
          call.receive(previous, folds ? place(step, p) : call.out(piece.begin), call.bytes(piece.count));
    }
  };
  const int steps = 2 * (n - 1);
  for (size_t p = 0; p < pieces; ++p) send(0, p);
  post_receives(0);
  for (int step = 0; step < steps; ++step) {
    if (step + 1 < steps) post_receives(step + 1);
    for (size_t p = 0; p < pieces; ++p) {
      call.await(previous, tickets[static_cast<size_t>(step % 2) * pieces + p]);
      const Slice piece = piece_of(slice_at(step + 1), pieces, p);
      if (step < n - 1)
        fold(call.request().options.reduction, call.request().type, call.out(piece.begin), place(step, p),
             piece.count);
      if (step + 1 < steps) send(step + 1, p);
    }
  }
  call.finish();
}

void allreduce_two_level(Call& call) {
  call.exchange_headers();
  const size_t count = call.request().count, bytes = call.bytes(count);
  find_machines(call);
  const std::vector<int>&leaders = call.workspace().leaders, &mine = call.workspace().mine;
  const size_t pieces = pieces_of(bytes);
  const auto piece_at = [&](size_t p) { return piece_of({0, count}, pieces, p); };
  const int leader = mine.front();
  if (call.rank() != leader) {
    // The result may lie in the place of the input: the leader sends it after it has received the whole
    // input.
    for (size_t p = 0; p < pieces; ++p)
      call.send(leader, call.in(piece_at(p).begin), call.bytes(piece_at(p).count));
    for (size_t p = 0; p < pieces; ++p)
      call.receive(leader, call.out(piece_at(p).begin), call.bytes(piece_at(p).count));
    call.finish();
    return;
  }
  const size_t piece_bytes = aligned(call.bytes(piece_at(0).count));
  const size_t exchange = DirectExchange::scratch_bytes(call, leaders.size());
  unsigned char* const scratch = call.workspace().scratch(std::max(2 * mine.size() * piece_bytes, exchange));
  const auto arrived = [&](size_t member, size_t p) {
    return scratch + (p % 2 * mine.size() + member) * piece_bytes;
  };
  auto& tickets = call.workspace().tickets;
  tickets.assign(2 * mine.size(), 0);
  const auto post = [&](size_t p) {
    for (size_t member = 1; member < mine.size(); ++member)
      tickets[p % 2 * mine.size() + member] =
          call.receive(mine[member], arrived(member, p), call.bytes(piece_at(p).count));
  };
  post(0);
  auto& inputs = call.workspace().inputs;
  for (size_t p = 0; p < pieces; ++p) {
    if (p + 1 < pieces) post(p + 1);
    inputs.assign(1, call.in(piece_at(p).begin));
    for (size_t member = 1; member < mine.size(); ++member) {
      call.await(mine[member], tickets[p % 2 * mine.size() + member]);
      inputs.push_back(arrived(member, p));
    }
    fold_inputs(call, call.out(piece_at(p).begin), inputs, piece_at(p).count);
  }
  if (leaders.size() > 1) {
    const size_t me =
        static_cast<size_t>(std::find(leaders.begin(), leaders.end(), call.rank()) - leaders.begin());
    const Slice own = slice_of(count, static_cast<int>(leaders.size()), static_cast<int>(me));
    DirectExchange(call, leaders, me, call.out(), call.out(), call.out(own.begin), true, scratch).run();
  }
  for (size_t member = 1; member < mine.size(); ++member)
    for (size_t p = 0; p < pieces; ++p)
      call.send(mine[member], call.out(piece_at(p).begin), call.bytes(piece_at(p).count));
  call.finish();
}

}  // namespace mx::comm
