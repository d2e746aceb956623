#include "comm/mpi/mpi_notices.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "comm/deadline.h"
#include "comm/mpi/mpi_thread.h"

namespace mx::comm {
namespace {

constexpr size_t kLongestText = 400;
constexpr int64_t kFlushMs = 20;

}  // namespace

struct MpiNotices::Message {
  uint64_t group, collectives, pairs, kind;
  char text[kLongestText + 1];
};

MpiNotices::MpiNotices() {
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "MPI_Comm_dup");
  check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

MpiNotices& MpiNotices::get() {
  // Never destroyed: the thread may use it until the process ends.
  static MpiNotices& notices = *new MpiNotices;
  return notices;
}

void MpiNotices::send(int to, const MpiNotice& notice) {
  Message message{notice.group, notice.collectives, notice.pairs, notice.kind, {}};
  std::memcpy(message.text, notice.text.data(), std::min(notice.text.size(), kLongestText));
  Sending& sending = sending_.emplace_back();
  sending.bytes.assign(reinterpret_cast<const char*>(&message), sizeof message);
  check_mpi(MPI_Isend(sending.bytes.data(), static_cast<int>(sending.bytes.size()), MPI_BYTE, to, 0, comm_,
                      &sending.request),
            "MPI_Isend");
}

void MpiNotices::flush() {
  const Deadline deadline = Deadline::after_ms(kFlushMs);
  do {
    for (auto at = sending_.begin(); at != sending_.end();) {
      int sent = 0;
      check_mpi(MPI_Test(&at->request, &sent, MPI_STATUS_IGNORE), "MPI_Test");
      at = sent != 0 ? sending_.erase(at) : std::next(at);
    }
  } while (!sending_.empty() && !deadline.passed());
}

void MpiNotices::read(const std::function<void(int from, const MpiNotice& notice)>& take) {
  for (;;) {
    int there = 0;
    MPI_Status status;
    check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, 0, comm_, &there, &status), "MPI_Iprobe");
    if (there == 0) return;
    Message message{};
    check_mpi(MPI_Recv(&message, sizeof message, MPI_BYTE, status.MPI_SOURCE, 0, comm_, MPI_STATUS_IGNORE),
              "MPI_Recv");
    message.text[kLongestText] = 0;
    take(status.MPI_SOURCE, {message.group, message.collectives, message.pairs,
                             static_cast<MpiNotice::Kind>(message.kind), message.text});
  }
}

}  // namespace mx::comm
