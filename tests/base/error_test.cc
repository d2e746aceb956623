#include "engine/base/error.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <string>

namespace mx {
namespace {

template <class Throw>
std::string text_of(const Throw& thrower) {
  try {
    thrower();
  } catch (...) {
    return current_exception_text();
  }
  return "nothing was thrown";
}

template <class E>
class ErrorTree : public ::testing::Test {};

using EveryError = ::testing::Types<InvalidArgument, InvalidHandle, InvalidState, OutOfMemory, DeviceError,
                                    Timeout, Cancelled, OperationError, AccessError>;
TYPED_TEST_SUITE(ErrorTree, EveryError);

TYPED_TEST(ErrorTree, IsCaughtAsErrorAndAsStandardExceptionWithItsMessage) {
  try {
    throw TypeParam("[op] expected 2, got 3");
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "[op] expected 2, got 3");
  }
  EXPECT_THROW(throw TypeParam("x"), std::runtime_error);
}

TYPED_TEST(ErrorTree, TextIsTheMessageAlone) {
  EXPECT_EQ(text_of([] { throw TypeParam("[op] expected 2, got 3"); }), "[op] expected 2, got 3");
}

struct Plain {};

TEST(ExceptionText, NamesTheTypeOfAStandardException) {
  EXPECT_EQ(text_of([] { throw std::out_of_range("index 7"); }), "std::out_of_range: index 7");
  EXPECT_EQ(text_of([] { throw std::bad_alloc(); }), "std::bad_alloc: std::bad_alloc");
}

TEST(ExceptionText, IsAThrownStringItself) {
  EXPECT_EQ(text_of([] { throw std::string("a string"); }), "a string");
  EXPECT_EQ(text_of([] { throw "a literal"; }), "a literal");
  EXPECT_EQ(text_of([] { throw static_cast<const char*>(nullptr); }), "null const char*");
}

TEST(ExceptionText, NamesTheTypeOfAnythingElse) {
  EXPECT_EQ(text_of([] { throw 42; }), "exception of type int");
  EXPECT_NE(text_of([] { throw Plain{}; }).find("Plain"), std::string::npos);
}

TEST(ExceptionText, LeavesTheExceptionInFlight) {
  try {
    try {
      throw Timeout("late");
    } catch (...) {
      EXPECT_EQ(current_exception_text(), "late");
      throw;
    }
  } catch (const Timeout& e) {
    EXPECT_STREQ(e.what(), "late");
  }
}

}  // namespace
}  // namespace mx
