// The meaning of a program: the results of its operations when they run one after another.
#pragma once

#include <cstdint>

#include "engine/detail/op.h"
#include "tests/engine/model/explorer.h"

namespace mx::test::model {

inline constexpr int kModelOps = 5;
inline constexpr int kModelVars = 3;

/// Returns a digest of the values that an operation reads; cells[i].value belongs to vars[i].
uint64_t inputs_of(detail::Op* op, const detail::VarBlock* vars, const auto* cells) {
  uint64_t inputs = 1;
  detail::for_each_link(op, [&](detail::Link& link) {
    if (link.access() != detail::Access::write) inputs = mix(inputs, cells[link.var() - vars].value);
  });
  return inputs;
}

/// The expected outcome of an operation.
struct Expectation {
  detail::Failure* cause = nullptr;  // if not null, the operation is skipped because of this failure
  uint64_t inputs = 0;
};

struct SerialOracle {
  struct Version {
    uint64_t value = 0;
    detail::Failure* failure = nullptr;
    bool recoverable = false;
  };
  Version versions[kModelVars];

  /// Runs the next operation in the order of the ring. The operation writes mix(inputs, result) to every
  /// variable it writes. If `failure` is not null, the operation fails with it unless it is skipped.
  Expectation run(detail::Op* op, const detail::VarBlock* vars, uint64_t result, detail::Failure* failure) {
    Expectation expected = {nullptr, inputs_of(op, vars, versions)};
    detail::for_each_link(op, [&](detail::Link& link) {
      const Version& version = versions[link.var() - vars];
      if (link.access() != detail::Access::write && expected.cause == nullptr)
        expected.cause = version.failure;
    });
    detail::for_each_link(op, [&](detail::Link& link) {
      if (!link.exclusive()) return;
      Version& version = versions[link.var() - vars];
      if (expected.cause == nullptr) {
        version = {mix(expected.inputs, result), failure, false};
      } else if (link.access() == detail::Access::write) {
        version = {version.value, expected.cause, false};
      } else if (version.failure == nullptr) {
        version = {version.value, expected.cause, true};
      }
    });
    return expected;
  }
};

}  // namespace mx::test::model
