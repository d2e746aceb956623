// Ranks as forked processes, for tests that kill and stop them.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "comm/shm/shm_communicator.h"

namespace mx::comm::testing {

class ForkedRanks {
 public:
  /// What a rank does. It reports to the parent with `say`, line by line.
  using Say = std::function<void(const std::string& line)>;
  using Body = std::function<void(Communicator& group, const Say& say)>;

  /// Forks a process for each rank; each joins the group and runs the body. What the body throws becomes a
  /// line
  /// "<type>: <text>"; at the end a process says "end". Precondition: this process has only one thread.
  ForkedRanks(int size, const ShmOptions& options, const Body& body);
  /// Kills what still runs.
  ~ForkedRanks();

  pid_t process(int rank) const { return processes_[static_cast<size_t>(rank)]; }
  /// Waits for a line of a rank; "" if the process has ended, "silence" after a minute.
  std::string line(int rank);
  void signal(int rank, int number);

 private:
  std::vector<pid_t> processes_;
  std::vector<int> pipes_;
  std::vector<std::string> read_;
};

/// Returns whether an address belongs to an arena: memory that all ranks map.
bool is_arena(const void* address);

}  // namespace mx::comm::testing
