// MpiGroup: waiting for messages, and what a rank looks for meanwhile.
#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/deadline.h"
#include "comm/mpi/mpi_group.h"
#include "comm/mpi/mpi_heads.h"
#include "comm/mpi/mpi_thread.h"
#include "engine/base/check.h"
#include "engine/base/error.h"

namespace mx::comm {
namespace {

// A waiting rank looks for notices after so many tests of its messages, and then once in so many.
constexpr unsigned kQuickTests = 256, kLookEvery = 16;
// How long the answer to a rank that makes another call may take, and messages that cannot be cancelled.
constexpr int64_t kAnswerMs = 100;
// How long a rank that has missed its deadline waits for the answers of those that have come to the call.
// They may have to wait for a processor.
constexpr int64_t kQuestionMs = 500;

}  // namespace

void MpiGroup::post_send(const void* data, size_t bytes, int peer, int tag) {
  check_mpi(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, comm_, &pending_.emplace_back()),
            "MPI_Isend");
}

void MpiGroup::post_receive(void* data, size_t bytes, int peer, int tag) {
  check_mpi(MPI_Irecv(data, static_cast<int>(std::min(bytes, kPieceBytes)), MPI_BYTE, peer, tag, comm_,
                      &pending_.emplace_back()),
            "MPI_Irecv");
}

// The buffers of a call belong to its caller again when it fails, so no message may use them after that.
// Heads lie in the group, which stays: those of this rank may still tell the others which call it has made.
void MpiGroup::wait(const Wait& what) {
  try {
    wait_for_pending(what);
  } catch (...) {
    drop_pending(what.moves);
    throw;
  }
}

void MpiGroup::drop_pending(bool cancel) noexcept {
  if (cancel) {
    for (MPI_Request& request : pending_)
      if (request != MPI_REQUEST_NULL) MPI_Cancel(&request);
    // MPI cannot cancel a message that is on its way, so it gets a moment to arrive.
    const Deadline deadline = Deadline::after_ms(kAnswerMs);
    for (int ended = 0; ended == 0 && !deadline.passed();)
      if (MPI_Testall(static_cast<int>(pending_.size()), pending_.data(), &ended, MPI_STATUSES_IGNORE) !=
          MPI_SUCCESS)
        break;
  }
  for (MPI_Request& request : pending_)
    if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
  pending_.clear();
}

void MpiGroup::wait_for_pending(const Wait& what) {
  statuses_.resize(pending_.size());
  for (unsigned tests = 1;; ++tests) {
    int ended = 0;
    check_mpi(MPI_Testall(static_cast<int>(pending_.size()), pending_.data(), &ended, statuses_.data()),
              "MPI_Testall");
    if (ended != 0) return;
    if (tests > kQuickTests && tests % kLookEvery == 0) look_around(what);
  }
}

void MpiGroup::look_around(const Wait& what) {
  MpiThread::get().check_failure();
  // The others must not wait in another group until this call has ended.
  if (MpiThread::get().is_closing()) leave_idle();
  read_notices();
  if (!what.moves) check_left(what);  // when data moves, all ranks are in the call
  if (MpiThread::get().job_is_late()) throw_timeout(what);
  if (!what.moves && what.peer < 0) check_pairs(what.request);
}

void MpiGroup::read_notices() {
  MpiNotices::get().read([](int from, const MpiNotice& notice) {
    const auto found = living().find(notice.group);
    if (found != living().end()) found->second->take_notice(from, notice);
  });
}

void MpiGroup::take_notice(int from, const MpiNotice& notice) {
  const auto rank = static_cast<size_t>(from);
  switch (notice.kind) {
    case MpiNotice::left:
    case MpiNotice::failed:
      notices_[rank] = notice;
      return;
    case MpiNotice::asks:
      if (collectives_ >= notice.collectives)
        MpiNotices::get().send(from, {number_, collectives_, 0, MpiNotice::is_there, ""});
      return;
    case MpiNotice::is_there:
      seen_[rank] = std::max(seen_[rank], notice.collectives);
      return;
  }
}

// The head of a rank may be missing because another rank, which has not come, would have passed it on. So the
// ranks that have not been heard of are asked; those that wait in the call answer.
void MpiGroup::throw_timeout(const Wait& what) {
  std::vector<bool> missing(static_cast<size_t>(size_), what.peer < 0 && !what.moves);
  if (what.peer >= 0) {
    missing[static_cast<size_t>(what.peer)] = true;
  } else if (!what.moves) {
    for (size_t place = 0; place < places_.size(); ++place)
      missing[(static_cast<size_t>(rank_) + place) % static_cast<size_t>(size_)] = false;
    for (int r = 0; r < size_; ++r)
      if (missing[static_cast<size_t>(r)])
        MpiNotices::get().send(r, {number_, collectives_, 0, MpiNotice::asks, ""});
    const Deadline deadline = Deadline::after_ms(kQuestionMs);
    while (std::find(missing.begin(), missing.end(), true) != missing.end() && !deadline.passed()) {
      read_notices();
      for (size_t r = 0; r < missing.size(); ++r)
        if (seen_[r] >= collectives_) missing[r] = false;
    }
  }
  std::string names;
  for (int r = 0; r < size_; ++r)
    if (missing[static_cast<size_t>(r)]) names += (names.empty() ? "" : ", ") + name(r);
  throw Timeout(mx::detail::concat(
      "[mpi] ", describe(what.request), " did not end in time",
      names.empty() ? "; all ranks have come to it, and one of them is stuck" : ", waiting for " + names));
}

// A rank that has met the others in this call may leave before they have noticed that.
void MpiGroup::check_left(const Wait& what) const {
  for (int r = 0; r < size_; ++r) {
    const auto& notice = notices_[static_cast<size_t>(r)];
    if (!notice || (what.peer >= 0 && r != what.peer)) continue;
    if (what.peer >= 0 ? notice->pairs >= pairs_[static_cast<size_t>(r)]
                       : notice->collectives >= collectives_)
      continue;
    throw PeerLost(mx::detail::concat(
        "[", to_string(what.request.collective), "] ", name(r),
        notice->kind == MpiNotice::failed ? " failed: " + notice->text + "," : " left the group", " during ",
        describe(what.request)));
  }
}

// A rank that has sent the head of a message waits for the answer of this one. If that rank has not come to
// the collective in which this one waits, neither would end. If it has met all others there, it is ahead:
// this rank still waits for a head that a third one passes on. Then the message belongs to a later call of
// this rank.
void MpiGroup::check_pairs(const Request& request) {
  int there = 0;
  MPI_Status status;
  check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, kPairTag, comm_, &there, &status), "MPI_Iprobe");
  if (there == 0) return;
  const int peer = status.MPI_SOURCE;
  std::vector<char> bytes(kMostHeadBytes);
  check_mpi(MPI_Recv(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, peer, kPairTag, comm_, &status),
            "MPI_Recv");
  if (start_of(bytes.data()).met >= collectives_) {
    int got = 0;
    check_mpi(MPI_Get_count(&status, MPI_BYTE, &got), "MPI_Get_count");
    bytes.resize(static_cast<size_t>(got));
    early_heads_[peer] = std::move(bytes);
    return;
  }
  CallHeader theirs;
  std::memcpy(&theirs, bytes.data() + sizeof(HeadStart),
              std::min<size_t>(start_of(bytes.data()).header, sizeof theirs));
  MPI_Request answer = MPI_REQUEST_NULL;
  const HeadStart mine = start_of(heads_.get());
  check_mpi(
      MPI_Isend(heads_.get(), static_cast<int>(head_bytes(mine)), MPI_BYTE, peer, kPairTag, comm_, &answer),
      "MPI_Isend");
  const Deadline deadline = Deadline::after_ms(kAnswerMs);
  for (int sent = 0; sent == 0 && !deadline.passed();)
    check_mpi(MPI_Test(&answer, &sent, MPI_STATUS_IGNORE), "MPI_Test");
  // The answer says more than the notice of failure that follows it, so the rank waits for the answer.
  met_pairs_[static_cast<size_t>(peer)] = ++pairs_[static_cast<size_t>(peer)];
  compare(request, theirs, peer);
}

}  // namespace mx::comm
