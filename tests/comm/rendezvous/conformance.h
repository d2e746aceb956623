// The conformance suite of rendezvous: what every implementation must do, wherever its table is.
//
// A test program links mx_rendezvous_conformance and names what it tests:
//
//   INSTANTIATE_TEST_SUITE_P(Local, RendezvousConformance,
//                            ::testing::Values(RendezvousCase{"local", make_local_connections}),
//                            rendezvous_name);
//
// Thread-safety: one thread at a time.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "comm/rendezvous.h"

namespace mx::comm {

/// Makes a connection to one table. The table exists as long as the function.
using ConnectRendezvous = std::function<std::shared_ptr<Rendezvous>()>;

struct RendezvousCase {
  std::string name;  ///< letters, digits and underscores
  /// Makes an empty table. Null: the test runs in another process.
  std::function<ConnectRendezvous()> make;
  std::function<void()> end = [] {};  ///< called after each test
};

inline std::ostream& operator<<(std::ostream& out, const RendezvousCase& c) { return out << c.name; }

/// For INSTANTIATE_TEST_SUITE_P.
std::string rendezvous_name(const ::testing::TestParamInfo<RendezvousCase>& info);

class RendezvousConformance : public ::testing::TestWithParam<RendezvousCase> {
 protected:
  void SetUp() override;
  void TearDown() override;

  ConnectRendezvous connect_;
};

}  // namespace mx::comm
