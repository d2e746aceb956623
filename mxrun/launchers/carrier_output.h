// The output of carriers: read from their pipes and printed by whole lines.
//
// A carrier passes on what its agent prints in pieces that end anywhere. If several carriers wrote to the
// output of mxrun themselves, their lines would mix. A single carrier's bytes are passed on as they come.
//
// Memory is bounded, as of RankStream: while the reader of mxrun's output does not read, the pipes are not
// read. When the reader is gone, they are read on, because commands such as mpirun crash if they cannot
// write. Then mxrun tells the agents, whose ranks get SIGPIPE when they write.
//
// Thread-safety: one thread at a time; a thread of the class reads and prints.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/net/fd.h"
#include "mxrun/output.h"

namespace mx::launch {

class CarrierOutput {
 public:
  CarrierOutput();
  /// Prints what has come, for a second at most if the reader does not read, and ends.
  ~CarrierOutput();
  CarrierOutput(const CarrierOutput&) = delete;
  CarrierOutput& operator=(const CarrierOutput&) = delete;

  /// Takes the pipes of one carrier, which must be non-blocking. Only before start().
  void add(int out_fd, int err_fd);
  void start();
  /// Returns whether there may be more to print. There is none if what was read has been printed, and each
  /// pipe has been closed by all writers or silent for some time. Precondition: the carriers have ended.
  bool pending() const { return pending_; }
  /// Returns whether the reader of standard output, or of standard error, is gone.
  bool reader_gone(bool of_error) const;
  /// A descriptor that is readable when reader_gone() may have changed since its last call.
  int reader_gone_fd() const { return gone_event_.get(); }

 private:
  struct Pipes {
    int out, err;
  };
  void run();
  bool step();
  void look_for_readers();

  std::vector<Pipes> pipes_;
  Outlet out_, err_;
  const comm::Fd gone_event_;
  std::vector<std::unique_ptr<RankStream>> streams_;
  std::atomic<bool> pending_{false}, ending_{false}, out_gone_{false}, err_gone_{false};
  std::thread thread_;
};

}  // namespace mx::launch
