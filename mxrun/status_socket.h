// Where a running mxrun says how its job is doing, for `mxrun top`: an abstract AF_UNIX socket whose name has
// the user and the job. It vanishes with mxrun. Only processes of the same user get an answer.
//
// Thread-safety: one thread at a time.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace mx::launch {

class StatusSocket {
 public:
  /// Listens. If that is not possible, as when another job has the same name, fd() is -1.
  explicit StatusSocket(const std::string& job);
  ~StatusSocket();
  StatusSocket(const StatusSocket&) = delete;
  StatusSocket& operator=(const StatusSocket&) = delete;

  /// Readable when somebody asks.
  int fd() const { return fd_; }
  /// Answers everybody who has asked with the text. Never blocks.
  void answer(const std::function<std::string()>& text) const;

 private:
  int fd_ = -1;
};

/// Returns the jobs of this user that run on this machine, by name.
std::vector<std::string> running_jobs();
/// Returns what the mxrun of a job says; nothing if it does not run. Waits 5 s at most.
std::optional<std::string> ask_status(const std::string& job);

}  // namespace mx::launch
