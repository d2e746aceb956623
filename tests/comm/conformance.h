// The conformance suite of communicators: what every implementation must do, whatever carries its bytes.
//
// Each rank is a thread. A test program adds the files conformance*.cc to its sources and names its groups:
//
//   namespace mx::comm {
//   std::vector<std::shared_ptr<Communicator>> make_shm_group(int ranks) { ... }
//   INSTANTIATE_TEST_SUITE_P(Shm, Conformance, ::testing::Values(ConformanceCase{"shm", make_shm_group}),
//                            conformance_name);
//   }
//
//   mx_add_test(comm_shm_test
//     SOURCES conformance.cc conformance_ends.cc conformance_failures.cc shm/conformance_test.cc
//     DEPS mx::comm)
//
// The name of the variable parts is the test's: "Shm/Conformance.AllreduceIsTheSerialFold/shm".
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

/// Makes a group; element r is rank r. The default time limit of its calls should be at least 20 s, because
/// machines that run the tests are busy.
using GroupFactory = std::function<std::vector<std::shared_ptr<Communicator>>(int ranks)>;

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

/// Runs f(rank, communicator) on one thread per rank and returns what each has thrown, or null.
std::vector<std::exception_ptr> run_ranks(const std::vector<std::shared_ptr<Communicator>>& group,
                                          const std::function<void(int rank, Communicator& group)>& f);
/// The same, and fails the test if a rank throws.
void expect_ranks(const std::vector<std::shared_ptr<Communicator>>& group,
                  const std::function<void(int rank, Communicator& group)>& f);
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

class Conformance : public ::testing::TestWithParam<ConformanceCase> {};

}  // namespace mx::comm
