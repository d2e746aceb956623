// Any exception that a function throws comes out of wait() as an mx::Error of a known type.
#include <gtest/gtest.h>

#include <exception>
#include <new>
#include <string>

#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;

using ErrorTypes = test::EngineTest;
INSTANTIATE_TEST_SUITE_P(Modes, ErrorTypes, ::testing::ValuesIn(test::all_cases()), test::CaseName());

struct NotStandard {
  int code = 7;
};
struct OwnError : Error {
  using Error::Error;
};

// An operation can fail in three ways: its function throws, an asynchronous function throws, or its token is
// given an error.
template <class E, class Thrown>
void expect_type(Engine& e, const Thrown& thrown, const std::string& text) {
  for (int way = 0; way < 3; ++way) {
    SCOPED_TRACE(way);
    Var v = e.new_var();
    const PushOptions options{.writes = {v}, .name = "thrower"};
    if (way == 0) {
      e.push([thrown] { throw thrown; }, options);
    } else if (way == 1) {
      e.push_async([thrown](RunContext, Completion) { throw thrown; }, options);
    } else {
      e.push_async([thrown](RunContext, Completion done) { done.fail(std::make_exception_ptr(thrown)); },
                   options);
    }
    const std::string message = error_of<E>([&] { e.wait(v); });
    EXPECT_TRUE(contains(message, "[thrower]")) << message;
    EXPECT_TRUE(contains(message, text)) << message;
    EXPECT_TRUE(contains(message, "error_types_test.cc:")) << message;
    EXPECT_TRUE(contains(error_of<E>([&] { e.wait_all(); }), "[thrower]"));
    e.delete_var(v);
  }
}

TEST_P(ErrorTypes, ErrorsOfTheLibraryKeepTheirType) {
  expect_type<InvalidArgument>(e_, InvalidArgument("expected 2, got 3"), "expected 2, got 3");
  expect_type<InvalidHandle>(e_, InvalidHandle("text"), "text");
  expect_type<InvalidState>(e_, InvalidState("text"), "text");
  expect_type<OutOfMemory>(e_, OutOfMemory("text"), "text");
  expect_type<DeviceError>(e_, DeviceError("text"), "text");
  expect_type<Timeout>(e_, Timeout("text"), "text");
  expect_type<Cancelled>(e_, Cancelled("text"), "text");
  expect_type<OperationError>(e_, OperationError("text"), "text");
  expect_type<AccessError>(e_, AccessError("text"), "text");
  expect_type<Error>(e_, OwnError("derived"), "derived");
}

TEST_P(ErrorTypes, EverythingElseBecomesAnOperationError) {
  expect_type<OperationError>(e_, std::runtime_error("std"), "std");
  expect_type<OperationError>(e_, std::out_of_range("index 9"), "index 9");
  expect_type<OperationError>(e_, std::string("a string"), "");
  expect_type<OperationError>(e_, static_cast<const char*>("a literal"), "a literal");
  expect_type<OperationError>(e_, 42, "int");
  expect_type<OperationError>(e_, NotStandard{}, "NotStandard");
  expect_type<OutOfMemory>(e_, std::bad_alloc(), "");
}

TEST_P(ErrorTypes, TheOriginalIsNested) {
  Var v = e_.new_var();
  e_.push([] { throw std::out_of_range("original"); }, {.writes = {v}});
  bool found = false;
  try {
    e_.wait(v);
  } catch (const OperationError& e) {
    try {
      std::rethrow_if_nested(e);
    } catch (const std::out_of_range& original) {
      found = std::string(original.what()) == "original";
    }
  }
  EXPECT_TRUE(found);
  error_of<OperationError>([&] { e_.wait_all(); });
}

TEST_P(ErrorTypes, AFailureWithoutReasonIsAnError) {
  Var v = e_.new_var();
  e_.push_async([](RunContext, Completion done) { done.fail(nullptr); }, {.writes = {v}, .name = "silent"});
  EXPECT_TRUE(contains(error_of<OperationError>([&] { e_.wait(v); }), "[silent]"));
  error_of<OperationError>([&] { e_.wait_all(); });
}

}  // namespace
}  // namespace mx
