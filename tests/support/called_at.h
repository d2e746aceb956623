// Whether errors name the line of the program that makes an object or calls a function.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <source_location>
#include <string>
#include <utility>

#include "engine/base/error.h"
#include "tests/support/errors.h"

namespace mx::test {

/// A call that fails, and the line on which it stands.
struct WrongCall {
  std::function<void()> make;
  unsigned line;
  WrongCall(std::function<void()> f, std::source_location where = std::source_location::current())
      : make(std::move(f)), line(where.line()) {}
};

/// Expects an InvalidArgument that names the line of the call in `file`, once.
inline void expect_named_once(const WrongCall& wrong, const std::string& file) {
  SCOPED_TRACE(wrong.line);
  const std::string text = error_of<InvalidArgument>(wrong.make);
  EXPECT_TRUE(contains(text, file + ':' + std::to_string(wrong.line) + ')')) << text;
  EXPECT_EQ(text.find("called at"), text.rfind("called at")) << text;
}

}  // namespace mx::test
