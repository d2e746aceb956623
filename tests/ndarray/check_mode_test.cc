// Mode check: a hand-pushed operation that accesses an array that it has not declared.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "ndarray/ndarray.h"
#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;

class ArrayCheckMode : public ::testing::Test {
 protected:
  Engine e_{test::mode_case(EngineMode::check, "check").options};
  EngineScope scope_{e_};
  NDArray a_ = full({1}, 5, f64), out_ = zeros({1});

  void SetUp() override {
    a_.wait();
    out_.wait();
  }
  // Pushes an operation with this body that declares a write of out_.
  void push(std::function<void()> body) {
    e_.push(std::move(body), {.updates = {out_.var()}, .name = "sloppy"});
  }
  void expect_found(std::function<void()> body, const std::string& how) {
    push(std::move(body));
    const std::string text = error_of<AccessError>([&] { out_.wait(); });
    EXPECT_TRUE(contains(text, "[sloppy] expected the operation to declare the array of f64 (1,)")) << text;
    EXPECT_TRUE(contains(text, how)) << text;
    EXPECT_TRUE(contains(text, "check_mode_test.cc:")) << text;
    EXPECT_THROW(e_.wait_all(), AccessError);
    out_ = zeros({1});
  }
};

TEST_F(ArrayCheckMode, ReadingAnUndeclaredArrayIsReported) {
  expect_found([a = a_] { a.item<double>(); }, "item(), among its reads or updates");
  expect_found([a = a_] { a.to_vector<double>(); }, "to_vector(), among its reads or updates");
  expect_found([a = a_] { a.data<double>(); }, "data(), among its reads or updates");
  expect_found([a = a_]() mutable { a.mutable_data<double>(); }, "data(), among its writes or updates");
  expect_found([a = a_] { to_string(a); }, "print(), among its reads or updates");
  expect_found([a = a_] { static_cast<void>(static_cast<bool>(a)); }, "bool(), among its reads or updates");
}

TEST_F(ArrayCheckMode, RecordedOperationsToo) {
  const Var var = out_.var();
  Segment s = e_.record([&] {
    e_.push([] {}, {.updates = {var}, .name = "tidy"});
    e_.push([a = a_] { a.item<double>(); }, {.updates = {var}, .name = "sloppy"});
  });
  s.replay();
  const std::string text = error_of<AccessError>([&] { out_.wait(); });
  EXPECT_TRUE(contains(text, "[sloppy] expected the operation to declare the array of f64 (1,)")) << text;
  EXPECT_THROW(e_.wait_all(), AccessError);
}

TEST_F(ArrayCheckMode, DeclaredAccessesAndArraysOfTheOperationsOwnPass) {
  const double* const memory = a_.data<double>();
  float* const out = out_.mutable_data<float>();
  const Var from = a_.var(), to = out_.var();
  e_.push(
      [=](RunContext c) {
        c.read(from);
        c.write(to);
        out[0] = static_cast<float>(memory[0]) + array({1.f, 2.f})[1].item<float>();
      },
      {.reads = {from}, .updates = {to}, .name = "tidy"});
  EXPECT_EQ(7, out_.item<float>());
  EXPECT_EQ(5, a_.item<double>()) << "outside of operations everything is allowed";
  e_.wait_all();
}

TEST_F(ArrayCheckMode, OtherModesDoNotLook) {
  for (const EngineMode mode : {EngineMode::threaded, EngineMode::naive}) {
    Engine e(test::mode_case(mode, "other").options);
    EngineScope scope(e);
    const NDArray a = full({1}, 5, f64), out = zeros({1});
    a.wait();
    double seen = 0;
    e.push([a, &seen] { seen = a.item<double>(); }, {.updates = {out.var()}, .name = "sloppy"});
    out.wait();
    EXPECT_EQ(5, seen);
  }
}

}  // namespace
}  // namespace mx
