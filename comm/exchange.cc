// The algorithms of the collectives that combine nothing.
#include <algorithm>
#include <cstring>

#include "comm/algorithms.h"

namespace mx::comm {

namespace {

int rank_behind(const Call& call, int step) { return (call.rank() + step) % call.size(); }
int rank_before(const Call& call, int step) { return (call.rank() + call.size() - step) % call.size(); }

}  // namespace

void allgather_direct(Call& call) {
  const Slice mine = call.slice(call.rank());
  const size_t bytes = call.bytes(mine.count), largest = call.bytes(call.slice(0).count);
  if (largest <= kJoinedBytes) {
    unsigned char* const scratch = call.workspace().scratch(largest * static_cast<size_t>(call.size()));
    for (int step = 1; step < call.size(); ++step) {
      const int to = rank_behind(call, step), from = rank_before(call, step);
      call.send_header(to);
      call.send(to, call.in(), bytes);
      call.receive_header(from);
      call.receive(from, scratch + static_cast<size_t>(from) * largest, call.bytes(call.slice(from).count));
    }
    call.check_headers();
    call.finish();
    // First its own: the input may lie anywhere within the output.
    if (bytes > 0) std::memmove(call.out(mine.begin), call.in(), bytes);
    for (int rank = 0; rank < call.size(); ++rank) {
      const Slice theirs = call.slice(rank);
      if (rank != call.rank() && theirs.count > 0)
        std::memcpy(call.out(theirs.begin), scratch + static_cast<size_t>(rank) * largest,
                    call.bytes(theirs.count));
    }
    return;
  }
  call.exchange_headers();
  if (bytes > 0) std::memmove(call.out(mine.begin), call.in(), bytes);
  for (int step = 1; step < call.size(); ++step) {
    const int to = rank_behind(call, step), from = rank_before(call, step);
    const Slice theirs = call.slice(from);
    call.send(to, call.out(mine.begin), bytes);
    call.receive(from, call.out(theirs.begin), call.bytes(theirs.count));
  }
  call.finish();
}

void all_to_all_direct(Call& call) {
  const size_t block = call.bytes(call.request().count), size = static_cast<size_t>(call.size());
  const bool in_place = call.in() == call.out() && block > 0;
  const bool joined = block <= kJoinedBytes;
  // Joined blocks arrive in the workspace; otherwise, the workspace holds a copy of an input in place.
  unsigned char* const scratch = call.workspace().scratch(joined || in_place ? block * size : 0);
  if (!joined) call.exchange_headers();
  const unsigned char* from_place = call.in();
  if (!joined && in_place) {
    std::memcpy(scratch, call.in(), block * size);
    from_place = scratch;
  }
  unsigned char* const to_place = joined ? scratch : call.out();
  for (int step = 1; step < call.size(); ++step) {
    const int to = rank_behind(call, step), from = rank_before(call, step);
    if (joined) {
      call.send_header(to);
      call.receive_header(from);
    }
    call.send(to, from_place + static_cast<size_t>(to) * block, block);
    call.receive(from, to_place + static_cast<size_t>(from) * block, block);
  }
  if (joined) call.check_headers();
  call.finish();
  if (block == 0) return;
  const size_t own = static_cast<size_t>(call.rank()) * block;
  if (!in_place) std::memcpy(call.out() + own, call.in() + own, block);
  if (!joined) return;
  for (size_t rank = 0; rank < size; ++rank)
    if (rank * block != own) std::memcpy(call.out() + rank * block, scratch + rank * block, block);
}

void broadcast_tree(Call& call) {
  const int n = call.size(), root = call.request().peer;
  const size_t bytes = call.bytes(call.request().count);
  const int place = (call.rank() + n - root) % n;  // in the tree, whose root is 0
  const auto rank_at = [&](int other) { return (other + root) % n; };
  // The parent of a place is the place without its lowest bit; the children are those with one more bit
  // below.
  int low = 1;
  while (low < n && (place & low) == 0) low <<= 1;
  auto& children = call.workspace().children;  // farthest first: their trees are the deepest
  children.clear();
  for (int bit = low >> 1; bit > 0; bit >>= 1)
    if (place + bit < n) children.push_back(rank_at(place + bit));
  const int parent = rank_at(place & ~low);
  const bool joined = bytes <= kJoinedBytes;
  const size_t pieces = joined ? 1 : (bytes + kPieceBytes - 1) / kPieceBytes;
  const auto piece_begin = [&](size_t p) { return joined ? 0 : p * kPieceBytes; };
  const auto piece_bytes = [&](size_t p) {
    return std::min(bytes - piece_begin(p), joined ? bytes : kPieceBytes);
  };

  auto& tickets = call.workspace().tickets;
  unsigned char* data = call.out();
  if (joined) {
    tickets.assign(children.size(), 0);  // of the headers of the children
    data = call.workspace().scratch(bytes);
    if (place == 0 && bytes > 0) std::memcpy(data, call.in(), bytes);
    if (place != 0) {
      call.send_header(parent);
      const Call::Ticket header = call.receive_header(parent);
      const Call::Ticket arrived = call.receive(parent, data, bytes);
      // The headers of the children are sent only now. So a rank that finds a mismatch can still send them
      // its error instead.
      call.check_header(parent, header);
      call.await(parent, arrived);
    }
    for (size_t c = 0; c < children.size(); ++c) {
      call.send_header(children[c]);
      call.send(children[c], data, bytes);
      tickets[c] = call.receive_header(children[c]);
    }
    for (size_t c = 0; c < children.size(); ++c) call.check_header(children[c], tickets[c]);
    call.finish();
    if (bytes > 0 && !(place == 0 && call.in() == call.out())) std::memcpy(call.out(), data, bytes);
    return;
  }
  call.exchange_headers();
  if (place == 0 && call.in() != call.out()) std::memcpy(call.out(), call.in(), bytes);
  tickets.assign(pieces, 0);
  if (place != 0)
    for (size_t p = 0; p < pieces; ++p)
      tickets[p] = call.receive(parent, data + piece_begin(p), piece_bytes(p));
  for (size_t p = 0; p < pieces; ++p) {
    if (place != 0) call.await(parent, tickets[p]);
    for (const int child : children) call.send(child, data + piece_begin(p), piece_bytes(p));
  }
  call.finish();
}

void barrier_dissemination(Call& call) {
  // After round k every rank has heard, directly or not, of the 2^(k+1) ranks before it. The messages are
  // headers, because no rank sends twice to another.
  for (int distance = 1; distance < call.size(); distance *= 2) {
    const int from = rank_before(call, distance);
    call.send_header(rank_behind(call, distance));
    call.check_header(from, call.receive_header(from));
  }
  call.finish();
}

void point_to_point(Call& call) {
  const int peer = call.request().peer;
  const size_t bytes = call.bytes(call.request().count);
  const bool sends = call.request().collective == Collective::send, joined = bytes <= kJoinedBytes;
  call.send_header(peer);
  if (sends && joined) call.send(peer, call.in(), bytes);
  call.check_header(peer, call.receive_header(peer));
  if (sends && !joined) call.send(peer, call.in(), bytes);
  if (!sends) call.receive(peer, call.out(), bytes);
  call.finish();
}

}  // namespace mx::comm
