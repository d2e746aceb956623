// The conformance suite of communicators: what every implementation must do, whatever carries its bytes.
//
// Each rank is a thread, or each is a process (rank_processes.h). A test program links the suite and names
// its groups:
//
//   namespace mx::comm {
//   std::vector<std::shared_ptr<Communicator>> make_shm_group(int ranks) { ... }
//   INSTANTIATE_TEST_SUITE_P(Shm, Conformance, ::testing::Values(ConformanceCase{"shm", make_shm_group}),
//                            conformance_name);
//   }
//
//   mx_add_test(comm_shm_test SOURCES shm/conformance_test.cc DEPS mx::comm mx_comm_conformance)
//
// The name of the variable parts is the test's: "Shm/Conformance.AllreduceIsTheSerialFold/shm".
//
// Tests are written for both kinds of ranks: a group has one element for each rank, which is null if the rank
// is in another process. A test makes groups of the sizes that sizes() returns, and asks ends() before it
// does anything that makes a group unusable.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace mx::comm {

/// Element r is rank r; null if that rank is in another process.
using RankGroup = std::vector<std::shared_ptr<Communicator>>;
/// Makes a group. The default time limit of its calls should be at least 20 s, because machines that run the
/// tests are busy.
using GroupFactory = std::function<RankGroup(int ranks)>;

struct ConformanceCase {
  std::string name;  ///< letters, digits and underscores
  GroupFactory make;
  int most_ranks = 9;
  /// False if a rank learns of a mismatch, an abort or a rank that is gone only at its deadline.
  bool notices_peers = true;
  /// False if calls that disagree are not compared, so that the tests of mismatches are skipped.
  bool compares_calls = true;
  /// Factor for the sizes of large buffers, for slow transports.
  double size_scale = 1;
  /// True for one case of each transport: sums of 4 and 64 MB as well.
  bool adds_megabytes = false;
};

inline std::ostream& operator<<(std::ostream& out, const ConformanceCase& c) { return out << c.name; }

/// For INSTANTIATE_TEST_SUITE_P.
std::string conformance_name(const ::testing::TestParamInfo<ConformanceCase>& info);

/// Runs f(rank, communicator) on one thread per rank of this process, and returns what each has thrown, or
/// null. Returns when all ranks have ended, also those of other processes.
std::vector<std::exception_ptr> run_ranks(const RankGroup& group,
                                          const std::function<void(int rank, Communicator& group)>& f);
/// The same, and fails the test if a rank throws.
void expect_ranks(const RankGroup& group, const std::function<void(int rank, Communicator& group)>& f);
/// Returns a rank of the group that is in this process.
Communicator& any_rank(const RankGroup& group);
/// Returns the text of an error, or "" for null.
std::string error_text(const std::exception_ptr& error);
template <class E>
bool is_error(const std::exception_ptr& error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const E&) {
    return true;
  } catch (...) {
  }
  return false;
}

/// The elements of a rank in the tests: `count` elements of `type`, as bytes. The same for the same seed.
/// Sums of floating point numbers depend on their order.
std::vector<unsigned char> test_data(Type type, size_t count, int rank, uint64_t seed);
/// The serial left fold over the data of all ranks.
std::vector<unsigned char> serial_fold(const std::vector<std::vector<unsigned char>>& rows, Type type,
                                       Reduction reduction = Reduction::sum);

class Conformance : public ::testing::TestWithParam<ConformanceCase> {
 public:
  /// The sizes of groups that this program can make, among those that the test wants.
  std::vector<int> sizes(const std::vector<int>& wanted);
  /// All that the case has, from 1 on.
  std::vector<int> sizes();
  /// Returns whether to run a part of a test that makes a group of this size unusable. Such a part is always
  /// run if the ranks are threads. If they are processes, a process runs at most one of them, because
  /// communicators such as "mpi" cannot be used in a process after a failure.
  bool ends(int ranks);
  RankGroup make(int ranks);

 protected:
  void TearDown() override;

 private:
  bool made_ = false;
};

}  // namespace mx::comm
