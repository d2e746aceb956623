// Ranks of the conformance suite that are processes of one job on one host, such as those of mpirun.
//
// Each process runs every test with its own rank. The processes keep in step through memory that all of them
// map: a test that has failed in one process ends the waits of the others.
//
// Some tests have parts that make their group unusable. After one, a process can make no other group over a
// communicator such as "mpi". So a job runs either the tests without such parts, or a single part of one
// test: see mpi/conformance.py, which starts the jobs.
//
// Thread-safety: one thread at a time, except the elements of SharedCounters.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace mx::comm {

class RankProcesses {
 public:
  /// Returns the value that rank 0 passes, on all ranks. A collective call.
  using ShareFromFirst = std::function<std::string(const std::string& value)>;

  /// Connects the processes. `ending`: which part of the test is run that makes its group unusable; -1: none.
  RankProcesses(int rank, int size, int ending, const ShareFromFirst& share);
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  /// The processes of this job, or null if the ranks are threads. Set by the constructor.
  static RankProcesses* of_job();

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// Returns whether to run the next part of the running test that makes its group unusable.
  bool runs_next_ending();
  /// Whether it has returned true.
  bool has_run_ending() const { return has_run_ending_; }
  /// The number of such parts of each test, by its full name.
  const std::map<std::string, int>& endings() const { return endings_; }
  /// Waits for all processes. Throws Cancelled if a test has failed in one, and Timeout.
  void meet();
  /// Makes meet() throw in all processes.
  void fail();
  /// Returns the bytes that each rank passes.
  std::vector<std::vector<unsigned char>> exchange(const std::vector<unsigned char>& bytes);
  /// Sets the counters to 0. A collective call.
  std::atomic<int>* counters();

 private:
  struct Memory;

  const int rank_, size_, ending_;
  int memory_file_ = -1;
  Memory* memory_ = nullptr;
  unsigned rounds_ = 0;  // of meet()
  bool has_run_ending_ = false;
  std::map<std::string, int> endings_;
};

/// As of RankProcesses; returns at once if the ranks are threads.
void meet_processes();
/// Element r is of rank r. Fills in those of the ranks of other processes.
void exchange_between_processes(std::vector<std::vector<unsigned char>>& by_rank);

/// A counter for each rank, which all ranks see.
class SharedCounters {
 public:
  explicit SharedCounters(int ranks);
  std::atomic<int>& operator[](int rank) const { return counters_[rank]; }

 private:
  std::unique_ptr<std::atomic<int>[]> own_;
  std::atomic<int>* counters_;
};

}  // namespace mx::comm
