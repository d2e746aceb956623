// What allreduce_bench measures: an allreduce of float32, in place, by ranks that are processes of this host.
// A system is a way to do it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace mx::bench {

/// One rank of a system, in its process.
class AllreduceRank {
 public:
  virtual ~AllreduceRank() = default;
  /// Returns a buffer for `count` numbers. All ranks ask for the same sizes in the same order. It lives as
  /// long as this object.
  virtual float* allocate(size_t count) = 0;
  virtual void allreduce(float* values, size_t count) = 0;
  virtual void barrier() = 0;
};

struct AllreduceSystem {
  std::string name;
  /// Called in the parent, before it forks the ranks. Returns what makes a rank; a rank's process calls it
  /// once.
  std::function<std::function<std::unique_ptr<AllreduceRank>(int rank)>(int ranks)> prepare;
  /// False for limits of the machine, which add nothing up.
  bool adds = true;
  /// Divides the number of calls per measurement, for systems that are so slow that all others would wait.
  int fewer_calls = 1;
};

/// The systems that run in forked processes. Append new ones here.
std::vector<AllreduceSystem> allreduce_systems();
/// Those over TCP connections of the loopback interface.
std::vector<AllreduceSystem> tcp_systems();
/// Those of Gloo, if it is built in.
std::vector<AllreduceSystem> gloo_systems();
/// A rank of a communicator. `arena`: its buffers come from Communicator::allocate().
std::unique_ptr<AllreduceRank> communicator_rank(std::shared_ptr<comm::Communicator> group, bool arena,
                                                 comm::Order order = comm::Order::rank);

/// Samples of one size on one rank: microseconds per call. Throws if a sum is wrong.
std::vector<double> measure_allreduce(AllreduceRank& rank, int ranks, size_t bytes, bool adds, int rounds,
                                      int fewer_calls = 1);

/// 4 KB, 256 KB, 4 MB, 64 MB
inline constexpr size_t kAllreduceBytes[] = {4096, 262'144, 4'194'304, 67'108'864};
/// "allreduce_256KB"
std::string allreduce_case(size_t bytes);

}  // namespace mx::bench
