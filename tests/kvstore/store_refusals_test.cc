// Calls that a store of any type refuses before it changes anything.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "operators/operators.h"
#include "tests/kvstore/rank_values.h"
#include "tests/kvstore/store_cases.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;
using test::expect_no_errors;

class StoreRefusals : public ::testing::TestWithParam<test::StoreCase> {
 protected:
  std::vector<std::string> on_ranks(const std::function<void(KVStore& store)>& body) const {
    return test::on_stores(GetParam(), body);
  }
};

TEST(KVStoreOptions, ValuesThatMeanNothingAreRefused) {
  const auto refuse = [](const char* text, const KVStoreOptions& options) {
    test::expect_error<InvalidArgument>(text, [&] { KVStore::create("local", options); });
  };
  refuse("timeout_ms of at least 0, got -1", {.timeout_ms = -1});
  refuse("fuse_bytes of at least 0, got -1", {.fuse_bytes = -1});
  refuse("cut_bytes of at least 1, got 0", {.cut_bytes = 0});
  refuse("bytes_in_flight of at least 1, got 0", {.bytes_in_flight = 0});
  refuse("check_every of at least 0, got -3", {.check_every = -3});
  const auto store = KVStore::create("local");
  test::expect_error<InvalidArgument>("the name of a key", [&] { store->init("", zeros({2})); });
  test::expect_error<InvalidArgument>("timeout_ms of at least 0", [&] { store->barrier(-5); });
  store->init("w", zeros({2}));
  test::expect_error<InvalidArgument>("timeout_ms of at least 0",
                                      [&] { store->push("w", zeros({2}), {.timeout_ms = -5}); });
  test::expect_error<InvalidArgument>(
      "KVReduce::mean, got 9", [&] { store->push("w", zeros({2}), {.reduce = static_cast<KVReduce>(9)}); });
  test::expect_error<InvalidArgument>("in UTF-8, got '\\xff'", [&] { store->init("\xff", zeros({2})); });
}

// Without a job there is no rendezvous.
TEST(KVStoreTypes, NcclOfAProgramThatIsAloneIsAStoreOrATypedError) {
  try {
    EXPECT_EQ(1, KVStore::create("nccl")->size());
  } catch (const Error& e) {
    EXPECT_TRUE(contains(e.what(), "nccl")) << e.what();
  }
}

TEST_P(StoreRefusals, AMeanOfIntegersIsRefusedBeforeAnythingChanges) {
  expect_no_errors(on_ranks([&](KVStore& kv) {
    kv.init("real", zeros({2}));
    kv.init("whole", zeros({2}, i32));
    const KVOptions mean{.reduce = KVReduce::mean};
    NDArray real = ones({2}), whole = ones({2}, i32);
    EXPECT_TRUE(contains(error_of<InvalidArgument>([&] {
                           kv.pushpull({"real", "whole"}, {{real}, {whole}}, {{real}, {whole}}, mean);
                         }),
                         "whole"));
    NDArray got = ones({2});
    kv.pull("real", got);
    EXPECT_EQ((std::vector<float>{0, 0}), got.to_vector<float>());
  }));
}

// Otherwise the result would depend on which keys share a message.
TEST_P(StoreRefusals, AnArrayToFillIsNoValueOfAnotherKey) {
  expect_no_errors(on_ranks([&](KVStore& kv) {
    NDArray x = ones({2}), y = ones({2}) * 10;
    const NDArray both = zeros({4});
    NDArray first = both.slice(0, Slice{0, 2}), second = both.slice(0, Slice{2, 4});
    EXPECT_TRUE(contains(error_of<InvalidArgument>([&] {
                           kv.allreduce({"x", "y"}, {x, y}, {y, x});
                         }),
                         "\"y\""));
    kv.allreduce({"x", "y"}, {first, second}, {first, second});  // parts of one array that do not overlap
    // Columns of a matrix lie between each other.
    NDArray matrix = zeros({5, 4});
    const auto columns = [&](int64_t begin, int64_t end) { return matrix.slice(1, Slice{begin, end}); };
    NDArray left = columns(0, 2), right = columns(2, 4), middle = columns(1, 3);
    NDArray backwards = columns(3, 4).slice(0, Slice{{}, {}, -1});
    kv.allreduce({"left", "right"}, {left, right}, {left, right});
    kv.allreduce({"left", "last"}, {left, backwards}, {left, backwards});
    for (NDArray& other : std::vector<NDArray>{left, right})
      error_of<InvalidArgument>([&] { kv.allreduce({"left", "middle"}, {other, middle}, {other, middle}); });
    error_of<InvalidArgument>([&] {
      kv.allreduce({"right", "last"}, {right, backwards}, {right, backwards});
    });
    kv.init("x", zeros({2}));
    kv.init("y", zeros({2}));
    EXPECT_TRUE(contains(error_of<InvalidArgument>([&] {
                           kv.pushpull({"x", "y"}, {{x}, {y}}, {{y}, {x}});
                         }),
                         "\"y\""));
    EXPECT_EQ((std::vector<float>{0, 0, 0, 0}), both.to_vector<float>());
  }));
}

TEST_P(StoreRefusals, ArgumentsThatMeanNothingAreRefusedBeforeAnythingIsPushed) {
  expect_no_errors(on_ranks([&](KVStore& kv) {
    NDArray token = zeros({1});
    error_of<InvalidArgument>([&] { kv.push_barrier(token, {.timeout_ms = -5}); });
    EXPECT_TRUE(contains(
        error_of<InvalidArgument>([&] { kv.buffer(std::numeric_limits<int64_t>::max(), f64); }), "2^63"));
    kv.push_barrier(token);
    token.wait();
  }));
}

TEST_P(StoreRefusals, NegativeNumbersOfElementsAreRefused) {
  expect_no_errors(on_ranks([&](KVStore& kv) {
    error_of<InvalidArgument>([&] { kv.buffer(-1, f32); });
    error_of<InvalidArgument>([&] { static_cast<void>(kv.slice_of(-5)); });
  }));
}

INSTANTIATE_TEST_SUITE_P(Stores, StoreRefusals, ::testing::ValuesIn(test::store_cases()),
                         [](const auto& c) { return c.param.name(); });

}  // namespace
}  // namespace mx
