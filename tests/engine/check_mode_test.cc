// Mode check: an access that was not declared is an error that names the operation and the variable.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;

class CheckMode : public ::testing::Test {
 protected:
  Engine e_{test::mode_case(EngineMode::check, "check").options};
  Var a_ = e_.new_var("alpha"), b_ = e_.new_var("beta"), out_ = e_.new_var("out");

  // Returns the message of the error that the operation's accesses cause, or "" if there is none.
  template <class F>
  std::string verdict(F&& access, PushOptions options) {
    Var done = e_.new_var();
    std::string text;
    options.name = "op";
    e_.push(
        [&](RunContext rc) {
          try {
            access(rc);
          } catch (const AccessError& e) {
            text = e.what();
          }
        },
        options);
    e_.wait_all();
    e_.delete_var(done);
    return text;
  }
};

TEST_F(CheckMode, DeclaredAccessesPass) {
  EXPECT_EQ("", verdict([&](RunContext rc) { rc.read(a_); }, {.reads = {a_}}));
  EXPECT_EQ("", verdict([&](RunContext rc) { rc.write(a_); }, {.writes = {a_}}));
  EXPECT_EQ("", verdict(
                    [&](RunContext rc) {
                      rc.read(a_);
                      rc.write(a_);
                    },
                    {.updates = {a_}}));
  EXPECT_EQ("", verdict(
                    [&](RunContext rc) {
                      rc.read(a_);
                      rc.write(a_);
                    },
                    {.reads = {a_}, .writes = {a_}}));
  std::vector<Var> many(20);
  for (Var& v : many) v = e_.new_var();
  EXPECT_EQ("", verdict(
                    [&](RunContext rc) {
                      for (Var v : many) rc.read(v);
                    },
                    {.reads = many, .writes = {a_}}));
}

TEST_F(CheckMode, UndeclaredOnesAreNamed) {
  const auto named = [](const std::string& text) {
    return contains(text, "[op]") && contains(text, "'alpha'");
  };
  EXPECT_TRUE(named(verdict([&](RunContext rc) { rc.read(a_); }, {.reads = {b_}})));
  EXPECT_TRUE(named(verdict([&](RunContext rc) { rc.write(a_); }, {.reads = {a_}})));
  EXPECT_TRUE(named(verdict([&](RunContext rc) { rc.read(a_); }, {.writes = {a_}})));
  EXPECT_TRUE(named(verdict([&](RunContext rc) { rc.write(a_); }, {.updates = {b_}})));
  EXPECT_TRUE(named(verdict([&](RunContext rc) { rc.read(a_); }, {})));
  EXPECT_FALSE(verdict([&](RunContext rc) { rc.read(Var{}); }, {.reads = {a_}}).empty());
}

TEST_F(CheckMode, TheErrorPoisonsLikeAnyOther) {
  e_.push([&](RunContext rc) { rc.read(a_); }, {.writes = {out_}, .name = "sloppy"});
  const std::string text = error_of<AccessError>([&] { e_.wait(out_); });
  EXPECT_TRUE(contains(text, "[sloppy]") && contains(text, "'alpha'")) << text;
  error_of<AccessError>([&] { e_.wait_all(); });
}

TEST_F(CheckMode, AsynchronousOperationsToo) {
  e_.push_async(
      [&](RunContext rc, Completion done) {
        rc.write(a_);
        done();
      },
      {.writes = {out_}, .name = "sloppy"});
  EXPECT_TRUE(contains(error_of<AccessError>([&] { e_.wait(out_); }), "'alpha'"));
  error_of<AccessError>([&] { e_.wait_all(); });
}

TEST_F(CheckMode, RecordedOperationsToo) {
  Segment s = e_.record([&] {
    e_.push([&](RunContext rc) { rc.write(out_); }, {.writes = {out_}, .name = "tidy"});
    e_.push([&](RunContext rc) { rc.read(a_); }, {.updates = {out_}, .name = "sloppy"});
  });
  s.replay();
  const std::string text = error_of<AccessError>([&] { e_.wait(out_); });
  EXPECT_TRUE(contains(text, "[sloppy]") && contains(text, "'alpha'")) << text;
  error_of<AccessError>([&] { e_.wait_all(); });
}

TEST_F(CheckMode, OtherModesDoNotLook) {
  Engine e(test::threaded_case(2).options);
  Var v = e.new_var(), w = e.new_var();
  e.push([&](RunContext rc) { rc.read(v); }, {.writes = {w}});
  e.wait(w);
}

}  // namespace
}  // namespace mx
