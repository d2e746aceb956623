// Compares the value or failure of a variable with the result of the serial oracle.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "engine/engine.h"
#include "tests/support/errors.h"
#include "tests/support/random_program.h"

namespace mx::test {

/// Returns the message that an operation of a random program throws when it fails.
inline std::string failure_text(int step) { return "<step " + std::to_string(step) + ">"; }

/// Waits for `var`, which is variable `v` of the oracle, and compares. `value` is the location that
/// operations write; it is read after the wait.
inline void expect_state(Engine& engine, const SerialInterpreter& oracle, int v, Var var,
                         const uint64_t& value) {
  const SerialInterpreter::State& state = oracle.state(v);
  if (state.poison.empty()) {
    try {
      engine.wait(var);
    } catch (const Error& e) {
      ADD_FAILURE() << "variable " << v << " should be good, got " << e.what();
    }
    EXPECT_EQ(oracle.values()[static_cast<size_t>(v)], value) << "variable " << v;
    return;
  }
  const std::string text = error_of<OperationError>([&] { engine.wait(var); });
  bool known = false;
  for (int step : state.poison) known = known || contains(text, failure_text(step));
  EXPECT_TRUE(known) << "variable " << v << ", one of " << state.poison.size()
                     << " causes, starting with step " << *state.poison.begin() << "; got: " << text;
}

}  // namespace mx::test
