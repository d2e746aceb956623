#include "comm/call.h"

#include <numeric>

#include "engine/base/check.h"

namespace mx::comm {

namespace {

// How long a rank that has found a mismatch tries to tell the others.
constexpr int64_t kFarewellMs = 200;
constexpr std::align_val_t kScratchAlignment{64};

}  // namespace

unsigned char* Workspace::scratch(size_t bytes) {
  if (bytes > scratch_bytes_) {
    release();
    scratch_ = static_cast<unsigned char*>(::operator new(bytes, kScratchAlignment));
    scratch_bytes_ = bytes;
  }
  return scratch_;
}

std::vector<int> Workspace::numbers_below(int count) {
  std::vector<int> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

void Workspace::release() {
  if (scratch_ != nullptr) ::operator delete(scratch_, kScratchAlignment);
  scratch_ = nullptr;
  scratch_bytes_ = 0;
}

Call::Call(Transport& transport, Workspace& workspace, const Request& request, uint64_t number,
           uint8_t algorithm, Deadline deadline)
    : transport_(transport),
      workspace_(workspace),
      request_(request),
      deadline_(deadline),
      rank_(transport.rank()),
      size_(transport.size()),
      width_(size_of(request.type)) {
  workspace_.own = CallHeader::of(request, number, algorithm);
  for (Workspace::Peer& peer : workspace_.peers) peer = {};
}

Call::Ticket Call::receive(int peer, void* data, size_t bytes) {
  Workspace::Peer& state = workspace_.peers[static_cast<size_t>(peer)];
  if (bytes > 0) {
    transport_.post_receive(peer, data, bytes);
    ++state.posted;
  }
  return state.posted;
}

void Call::await(int peer, Ticket ticket) {
  Workspace::Peer& state = workspace_.peers[static_cast<size_t>(peer)];
  while (state.awaited < ticket) {
    transport_.await_receive(peer, deadline_);
    ++state.awaited;
  }
}

void Call::finish() {
  transport_.finish(deadline_);
  for (Workspace::Peer& peer : workspace_.peers) peer.awaited = peer.posted;
}

void Call::send_header(int peer) {
  workspace_.peers[static_cast<size_t>(peer)].header_sent = true;
  send(peer, &workspace_.own, sizeof(CallHeader));
}

Call::Ticket Call::receive_header(int peer) {
  workspace_.peers[static_cast<size_t>(peer)].header_posted = true;
  return receive(peer, &workspace_.headers[static_cast<size_t>(peer)], sizeof(CallHeader));
}

void Call::check_header(int peer, Ticket ticket) {
  await(peer, ticket);
  compare_header(peer);
}

void Call::check_headers() {
  std::vector<int>& left = workspace_.unchecked;
  left.clear();
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_) left.push_back(peer);
  while (!left.empty()) {
    const size_t place = transport_.await_first(left, deadline_);
    const int peer = left[place];
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(place));
    ++workspace_.peers[static_cast<size_t>(peer)].awaited;
    compare_header(peer);
  }
}

void Call::compare_header(int peer) {
  const CallHeader& got = workspace_.headers[static_cast<size_t>(peer)];
  if (!workspace_.own.matches(got)) [[unlikely]]
    fail_mismatch(peer, got);
}

std::exception_ptr Call::arrived_mismatch() {
  for (int peer = 0; peer < size_; ++peer) {
    const Workspace::Peer& state = workspace_.peers[static_cast<size_t>(peer)];
    // The header is the first message of a call, so if nothing has been awaited, nobody has compared it.
    if (!state.header_posted || state.awaited > 0 || transport_.arrived(peer) == 0) continue;
    const CallHeader& got = workspace_.headers[static_cast<size_t>(peer)];
    if (workspace_.own.matches(got)) continue;
    try {
      fail_mismatch(peer, got);
    } catch (...) {
      return std::current_exception();
    }
  }
  return nullptr;
}

void Call::exchange_headers() {
  for (int step = 1; step < size_; ++step) {
    const int to = (rank_ + step) % size_, from = (rank_ + size_ - step) % size_;
    send_header(to);
    receive_header(from);
  }
  check_headers();
}

void Call::fail_mismatch(int peer, const CallHeader& got) {
  const char* const name = to_string(request_.collective);
  MX_CHECK(got.failed == 0, ProtocolError, "[", name,
           "] expected the same call on all ranks, got an error on rank ", peer, " on ",
           transport_.host(peer), ": ", got.describe(), "; this is rank ", rank_, " on ",
           transport_.host(rank_), ", ", workspace_.own.describe());
  const std::string mine = workspace_.own.describe(), theirs = got.describe();
  const char* const hint = mine != theirs ? ""
                           : workspace_.own.algorithm != got.algorithm
                               ? "; the cost models of the ranks differ"
                               : "; their names differ further behind";
  throw ProtocolError(mx::detail::concat("[", name, "] expected the same call on all ranks, got ", mine,
                                         " on rank ", rank_, " on ", transport_.host(rank_), " and ", theirs,
                                         " on rank ", peer, " on ", transport_.host(peer), hint));
}

void Call::give_up(const std::exception_ptr& error, bool tell) noexcept {
  try {
    if (tell) {
      try {
        std::rethrow_exception(error);
      } catch (...) {
        workspace_.failure = CallHeader::failure(current_exception_text());
      }
      for (int peer = 0; peer < size_; ++peer)
        if (peer != rank_ && !workspace_.peers[static_cast<size_t>(peer)].header_sent)
          send(peer, &workspace_.failure, sizeof(CallHeader));
      // Not finish(): it would wait for the receives of this call, which nobody may answer, and then blame a
      // rank that has done nothing wrong.
      transport_.flush(Deadline::after_ms(kFarewellMs));
    }
  } catch (...) {  // the error that is known already comes first
  }
  try {
    transport_.abort(error);
    transport_.finish(Deadline::after_ms(0));
  } catch (...) {
  }
}

}  // namespace mx::comm
