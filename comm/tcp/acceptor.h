// TcpAcceptor: accepts the connections of known ranks, all handshakes at once. Internal to comm/tcp.
//
// It has one thread, which ends when all ranks have come, at the deadline, or in the destructor.
//
// Thread-safety: the constructor, wait() and the destructor are called by one thread.
#pragma once

#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "comm/deadline.h"
#include "comm/net/handshake.h"
#include "comm/net/socket.h"
#include "comm/net/stream.h"

namespace mx::comm {

class TcpAcceptor {
 public:
  /// Accepts the ranks first..last, each once. Of two connections of one rank, the later counts: the rank
  /// has given up the earlier one. One that its rank has closed without a word counts no more. The thread
  /// calls `check` now and then; an error of it ends the thread.
  TcpAcceptor(Listener listener, Identity self, int first, int last, Deadline deadline,
              std::function<void()> check = {});
  ~TcpAcceptor();
  TcpAcceptor(const TcpAcceptor&) = delete;
  TcpAcceptor& operator=(const TcpAcceptor&) = delete;

  const Endpoint& at() const { return listener_.at; }
  /// Waits until all ranks have come, at most until the deadline. Throws the error of `check`.
  void wait();
  /// Returns the connections so far, by rank. Precondition: after wait().
  std::map<int, Stream> take();
  /// Why the last refused connection was refused, or "".
  std::string last_refusal() const;

 private:
  struct Guest;

  void thread_main();
  void serve(Guest& guest);
  void refuse(const Guest& guest, const std::string& why);
  /// Returns whether all ranks are here. Forgets connections that have been closed.
  bool complete();

  Listener listener_;
  const Identity self_;
  const int first_, last_;
  const Deadline deadline_;
  const std::function<void()> check_;
  Fd wake_;  ///< eventfd, readable when the thread must end

  mutable std::mutex mutex_;
  std::map<int, Stream> ranks_;  ///< guarded by mutex_
  std::string refusal_;          ///< guarded by mutex_
  std::exception_ptr failure_;   ///< of the thread, guarded by mutex_
  std::thread thread_;
};

}  // namespace mx::comm
