// Errors of operations on streams. Exceptions of tasks play the part of hardware errors. A GPU has no
// harmless hardware errors, so only exceptions of functions are tested there.
#include <gtest/gtest.h>

#include <latch>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/error.h"
#include "tests/engine/stream_suite.h"
#include "tests/support/waiting.h"

namespace mx::test {

namespace {

std::string error_at(Engine& engine, Var var) {
  try {
    engine.wait(var);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

bool names(const std::string& error, const std::string& name) { return error.starts_with("[" + name + "]"); }

TEST_P(StreamSuite, AFunctionThatThrowsPoisonsWhatDependsOnIt) {
  Engine& engine = start();
  auto a = array(4), b = array(4), c = array(4);
  push_fill(*b, 1);
  engine.push([](RunContext) { throw std::runtime_error("broken"); },
              {.writes = {a->var}, .context = device(), .name = "bad"});
  push_add(*a, *b, *c);
  EXPECT_TRUE(names(error_at(engine, c->var), "bad"));
  EXPECT_TRUE(names(error_at(engine, a->var), "bad"));
  EXPECT_EQ(error_at(engine, b->var), "");
  push_fill(*a, 2);
  push_add(*a, *b, *c);
  EXPECT_EQ(values(*c), std::vector<double>(4, 3));
  EXPECT_THROW(engine.wait_all(), Error);
}

TEST_P(StreamSuite, AnAsynchronousFunctionThatThrowsFailsOnce) {
  Engine& engine = start();
  auto a = array(4);
  engine.push_async([](RunContext, Completion) { throw std::runtime_error("broken"); },
                    {.writes = {a->var}, .context = device(), .name = "bad"});
  EXPECT_TRUE(names(error_at(engine, a->var), "bad"));
  try {
    engine.wait_all();
    ADD_FAILURE() << "expected the error";
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()).find("more operations failed"), std::string::npos) << e.what();
  }
  EXPECT_EQ(engine.stats().failed, 1u);
}

TEST_P(StreamSuite, AnErrorOnOneStreamPoisonsExactlyWhatDependsOnIt) {
  if (!host_code()) GTEST_SKIP() << "needs a device that can fail without consequences";
  Engine& engine = start(4);
  auto gate = ops().new_meeting(2);
  std::vector<std::unique_ptr<StreamArray>> arrays;
  for (size_t i = 0; i < 6; ++i) arrays.push_back(array(4, i));
  const auto& a = *arrays[0];
  std::latch enqueued(2);
  engine.push(
      [&](RunContext run) {
        gate->attend(*run.stream());
        run.stream()->submit([](KernelContext&) { throw std::runtime_error("broken"); });
      },
      {.writes = {a.var}, .context = device(), .name = "bad"});
  // These are enqueued before the error occurs, so they run on undefined data.
  engine.push([&](RunContext) { enqueued.count_down(); },
              {.reads = {a.var}, .writes = {arrays[1]->var}, .context = device(1), .name = "reader"});
  engine.push([&](RunContext) { enqueued.count_down(); },
              {.reads = {arrays[1]->var}, .updates = {arrays[2]->var}, .context = device(), .name = "next"});
  push_fill(*arrays[3], 3);
  // Ordered after the reader, but reads nothing: order alone does not propagate an error.
  enqueued.wait();
  push_fill(*arrays[1], 1);
  gate->host_attends();
  EXPECT_TRUE(names(error_at(engine, a.var), "bad"));
  EXPECT_TRUE(names(error_at(engine, a.var), "bad"));  // every waiter gets the error, not only the first
  EXPECT_TRUE(names(error_at(engine, arrays[2]->var), "bad"));
  EXPECT_EQ(values(*arrays[1]), std::vector<double>(4, 1));
  EXPECT_EQ(values(*arrays[3]), std::vector<double>(4, 3));
  // The error is known by now, so dependants are skipped.
  push_fill(*arrays[4], 4);
  push_add(a, *arrays[3], *arrays[4]);
  EXPECT_TRUE(names(error_at(engine, arrays[4]->var), "bad"));
  std::string all;
  try {
    engine.wait_all();
  } catch (const Error& e) {
    all = e.what();
  }
  EXPECT_TRUE(names(all, "bad")) << all;
  EXPECT_EQ(engine.stats().failed, 1u);
}

TEST_P(StreamSuite, AHostOperationIsSkippedWhenTheDeviceHasFailed) {
  if (!host_code()) GTEST_SKIP() << "needs a device that can fail without consequences";
  Engine& engine = start();
  auto gate = ops().new_meeting(2);
  auto a = array(4);
  const Var out = engine.new_var();
  bool ran = false;
  engine.push(
      [&](RunContext run) {
        gate->attend(*run.stream());
        run.stream()->submit([](KernelContext&) { throw std::runtime_error("broken"); });
      },
      {.writes = {a->var}, .context = device(), .name = "bad"});
  engine.push([&] { ran = true; }, {.reads = {a->var}, .writes = {out}, .name = "host"});
  gate->host_attends();
  EXPECT_TRUE(names(error_at(engine, out), "bad"));
  EXPECT_FALSE(ran);
  EXPECT_THROW(engine.wait_all(), Error);
}

TEST_P(StreamSuite, AnUpdateSkippedForABadInputIsRecovered) {
  Engine& engine = start();
  auto weight = array(4), bad = array(4);
  push_fill(*weight, 5);
  engine.push([](RunContext) { throw std::runtime_error("broken"); },
              {.writes = {bad->var}, .context = device(), .name = "bad"});
  push_add(*weight, *bad, *weight);
  EXPECT_TRUE(names(error_at(engine, weight->var), "bad"));
  engine.recover(weight->var);
  EXPECT_EQ(values(*weight), std::vector<double>(4, 5));
  EXPECT_THROW(engine.wait_all(), Error);
}

TEST_P(StreamSuite, AValueThatFailedOnTheDeviceIsNotRecovered) {
  if (!host_code()) GTEST_SKIP() << "needs a device that can fail without consequences";
  Engine& engine = start();
  auto gate = ops().new_meeting(2);
  auto weight = array(4), bad = array(4);
  engine.push([](RunContext) { throw std::runtime_error("broken"); },
              {.writes = {bad->var}, .context = device(), .name = "bad input"});
  engine.push(
      [&](RunContext run) {
        gate->attend(*run.stream());
        run.stream()->submit([](KernelContext&) { throw std::runtime_error("broken"); });
      },
      {.writes = {weight->var}, .context = device(), .name = "bad weight"});
  // Skipped at once, before the engine knows that the weight is poisoned as well.
  push_add(*weight, *bad, *weight);
  engine.recover(weight->var);
  gate->host_attends();
  EXPECT_TRUE(names(error_at(engine, weight->var), "bad weight"));
  EXPECT_THROW(engine.wait_all(), Error);
}

// Returns an object that counts the latch down when the function that holds it is destroyed, even if the
// function was skipped.
std::shared_ptr<void> at_end(std::latch& latch) {
  return {nullptr, [&latch](void*) { latch.count_down(); }};
}

TEST_P(StreamSuite, AWaiterOfAGoodVersionDoesNotGetTheFailureOfTheNext) {
  Engine& engine = start();
  auto gate = ops().new_meeting(2);
  auto a = array(4);
  engine.push([&](RunContext run) { gate->attend(*run.stream()); },
              {.writes = {a->var}, .context = device(), .name = "good"});
  std::string error = "none yet";
  std::thread waiter([&] { error = error_at(engine, a->var); });
  until_waiting(engine);
  engine.push([](RunContext) { throw std::runtime_error("broken"); },
              {.writes = {a->var}, .context = device(), .name = "bad"});
  std::latch skipped(1);
  engine.push([end = at_end(skipped)](RunContext) {}, {.reads = {a->var}, .context = device()});
  skipped.wait();
  gate->host_attends();
  waiter.join();
  EXPECT_EQ(error, "");
  EXPECT_TRUE(names(error_at(engine, a->var), "bad"));
  EXPECT_THROW(engine.wait_all(), Error);
}

TEST_P(StreamSuite, AWaiterGetsTheFailureOfItsVersionThoughTheNextIsGood) {
  if (!host_code()) GTEST_SKIP() << "needs a device that can fail without consequences";
  Engine& engine = start();
  auto gate = ops().new_meeting(2);
  auto a = array(4);
  engine.push(
      [&](RunContext run) {
        gate->attend(*run.stream());
        run.stream()->submit([](KernelContext&) { throw std::runtime_error("broken"); });
      },
      {.writes = {a->var}, .context = device(), .name = "bad"});
  std::string error;
  std::thread waiter([&] { error = error_at(engine, a->var); });
  until_waiting(engine);
  push_fill(*a, 2);
  std::latch issued(1);
  engine.push([&](RunContext) { issued.count_down(); }, {.reads = {a->var}, .context = device()});
  issued.wait();
  gate->host_attends();
  waiter.join();
  EXPECT_TRUE(names(error, "bad")) << error;
  EXPECT_EQ(values(*a), std::vector<double>(4, 2));
  EXPECT_THROW(engine.wait_all(), Error);
}

TEST_P(StreamSuite, AWaiterReturnsThoughTheVariableIsDeletedMeanwhile) {
  Engine& engine = start();
  auto gate = ops().new_meeting(2);
  auto memory = array(4);
  const Var v = engine.new_var();
  const uint64_t vars = engine.stats().vars;
  engine.push([&](RunContext run) { gate->attend(*run.stream()); },
              {.writes = {v}, .context = device(), .name = "last"});
  std::string error = "none yet";
  std::thread waiter([&] { error = error_at(engine, v); });
  until_waiting(engine);
  engine.delete_var(v);
  std::latch issued(1);
  engine.push([&](RunContext) { issued.count_down(); }, {.context = device()});
  issued.wait();
  gate->host_attends();
  waiter.join();
  EXPECT_EQ(error, "");
  engine.wait_all();
  EXPECT_EQ(vars - 1, engine.stats().vars);
}

TEST_P(StreamSuite, ATokenUsedAfterTheDeviceHasFailedDoesNotHideIt) {
  if (!host_code()) GTEST_SKIP() << "needs a device that can fail without consequences";
  Engine& engine = start();
  auto a = array(4), b = array(4);
  Completion token;
  std::latch has_token(1);
  engine.push_async(
      [&](RunContext run, Completion done) {
        run.stream()->submit([](KernelContext&) { throw std::runtime_error("broken"); });
        token = std::move(done);
        has_token.count_down();
      },
      {.writes = {a->var}, .context = device(), .name = "bad"});
  has_token.wait();
  while (engine.stats().failed == 0) push_fill(*b, 1), engine.wait(b->var);
  EXPECT_FALSE(engine.wait(a->var, 0));
  token.done();
  EXPECT_TRUE(names(error_at(engine, a->var), "bad"));
  EXPECT_THROW(engine.wait_all(), Error);
}

}  // namespace

}  // namespace mx::test
