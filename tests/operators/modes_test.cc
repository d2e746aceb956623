// Random programs of array operations give the same bits in every mode of the engine, from one thread and
// from four.
//
// The arrays are small ones (operations run immediately if possible), large ones (operations are pushed) and
// parts of large ones (small, but on memory that is in use), on the CPU and on virtual devices.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "operators/attention.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/linalg.h"
#include "operators/reduce.h"
#include "operators/scan.h"
#include "tests/operators/registry_support.h"
#include "tests/support/engine_cases.h"

namespace mx {
namespace {

using test::Content;
using test::content_of;

constexpr int64_t kRows = 70, kRow = 80;  // 5600 elements: too large to run immediately

class Program {
 public:
  explicit Program(uint64_t seed) : random_(seed) {
    for (const Context context : {cpu(), cpu(), virt(0), virt(1)}) {
      small_.push_back(arange(kRow).to(f32).to(context) * 0.01f);
      large_.push_back(full({kRows, kRow}, 0.5, f32, context));
    }
  }

  void step() {
    std::vector<NDArray>& group = pick(2) == 0 ? small_ : large_;
    NDArray& x = group[pick(4)];
    const NDArray y = group[pick(4)].to(x.context());
    switch (pick(12)) {
      case 0:
        x = sin(y) + x;
        return;
      case 1:
        x = maximum(x, y * 0.5f) - 0.25f;
        return;
      case 2:
        x += y;
        x *= 0.5f;
        return;
      case 3:
        x.copy_from(y);
        return;
      case 4:
        x.copy_from(group[pick(4)]);  // possibly from another device
        return;
      case 5:
        x.fill_(static_cast<double>(pick(100)) / 64);
        return;
      case 6:  // overlapping
        x[{Slice{1, {}}}] = x[{Slice{{}, -1}}];
        return;
      case 7:
        x[{Slice{{}, {}, -1}}] = tanh(x);
        return;
      case 8:  // a row of a large array, which may be in use
        large_[pick(4)][row()] = small_[pick(4)];
        return;
      case 9: {
        const NDArray& from = large_[pick(4)];
        small_[pick(4)].copy_from(from[row()]);
        return;
      }
      case 10: {
        NDArray& target = large_[pick(4)];
        auto part = target[{row(), Slice{{}, -1, 3}}];
        part += target[{row(), Slice{1, {}, 3}}];
        part *= 0.5f;
        return;
      }
      default:
        if (pick(8) == 0) x.fill_(y.flatten()[static_cast<int64_t>(pick(kRow))].item<float>());  // waits
        x = (x.transpose().clone() * 0.75f).transpose();
    }
  }

  std::vector<Content> contents() const {
    std::vector<Content> all;
    for (const std::vector<NDArray>* group : {&small_, &large_})
      for (const NDArray& a : *group) all.push_back(content_of(a));
    return all;
  }

 private:
  size_t pick(uint64_t n) { return static_cast<size_t>(random_() % n); }
  int64_t row() { return static_cast<int64_t>(pick(kRows)); }

  std::mt19937_64 random_;
  std::vector<NDArray> small_, large_;
};

std::vector<Content> run(uint64_t seed, int steps) {
  Program program(seed);
  for (int i = 0; i < steps; ++i) program.step();
  return program.contents();
}

std::vector<Content> expected(uint64_t seed, int steps) {
  Engine engine(test::mode_case(EngineMode::naive, "naive").options);
  const EngineScope scope(engine);
  return run(seed, steps);
}

class Modes : public test::EngineTest {
 protected:
  EngineScope scope_{e_};
};
INSTANTIATE_TEST_SUITE_P(All, Modes, ::testing::ValuesIn(test::all_cases()), test::CaseName());

TEST_P(Modes, RandomProgramsGiveTheBitsOfSerialExecution) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    const std::vector<Content> serial = expected(seed, 150);
    EXPECT_TRUE(serial == run(seed, 150)) << "seed " << seed;
  }
  e_.wait_all();
}

TEST_P(Modes, ThreadsWithProgramsOfTheirOwnAndSharedSumsGiveTheSerialResult) {
  constexpr int kThreads = 4, kSteps = 60;
  const NDArray small = zeros({16}, i64), large = zeros({100, 100}, i64), device = zeros({16}, i64, virt(0));
  std::vector<std::vector<Content>> serial(kThreads), found(kThreads);
  for (int t = 0; t < kThreads; ++t)
    serial[static_cast<size_t>(t)] = expected(100 + static_cast<uint64_t>(t), kSteps);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const EngineScope scope(e_);
      Program program(100 + static_cast<uint64_t>(t));
      NDArray s = small, l = large, d = device;
      for (int i = 0; i < kSteps; ++i) {
        program.step();
        s += t + i;
        if (i % 4 == 0) l += 1;
        l[i] += t;  // one row: runs immediately if no operation uses the whole array
        if (i % 8 == 0) d += i;
      }
      found[static_cast<size_t>(t)] = program.contents();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t t = 0; t < kThreads; ++t) EXPECT_TRUE(serial[t] == found[t]) << "thread " << t;
  int64_t sum = 0, device_sum = 0;
  std::vector<int64_t> rows(100);
  for (int t = 0; t < kThreads; ++t) {
    for (int i = 0; i < kSteps; ++i) {
      sum += t + i;
      for (int64_t& row : rows) row += i % 4 == 0;
      rows[static_cast<size_t>(i)] += t;
      device_sum += i % 8 == 0 ? i : 0;
    }
  }
  EXPECT_EQ(std::vector<int64_t>(16, sum), small.to_vector<int64_t>());
  EXPECT_EQ(std::vector<int64_t>(16, device_sum), device.to_vector<int64_t>());
  for (int64_t i = 0; i < 100; ++i)
    EXPECT_EQ(std::vector<int64_t>(100, rows[static_cast<size_t>(i)]), large[i].to_vector<int64_t>());
  e_.wait_all();
}

TEST_P(Modes, ARecordedProgramReplaysToTheBitsOfRunningAgain) {
  for (const Context context : {cpu(), virt(0)}) {
    const auto start = [&] { return (arange(kRow).to(f32) * 0.1f).to(context); };
    NDArray x = start(), y = zeros({kRows, kRow}, f32, context);
    NDArray again_x = start(), again_y = zeros({kRows, kRow}, f32, context);
    const auto program = [](NDArray& a, NDArray& b) {
      a *= 1.5f;
      b += sin(a);
      a[{Slice{1, {}}}] = b[{3, Slice{{}, -1}}];
      b[0] = a - b[1];
    };
    Segment segment = e_.record([&] { program(x, y); });
    for (int i = 0; i < 4; ++i) {
      segment.replay();
      program(again_x, again_y);
      EXPECT_EQ(content_of(again_x), content_of(x));
      EXPECT_EQ(content_of(again_y), content_of(y));
      x[0] = i;  // between replays
      again_x[0] = i;
    }
  }
}

TEST_P(Modes, ErrorsOfOperatorsNameThemTheirInputsAndThePlace) {
  set_check_numerics(true);
  for (int64_t size : {int64_t{8}, int64_t{10000}}) {
    NDArray x = ones({size}), zero = zeros({size});
    const int line = __LINE__ + 1;
    NDArray bad = x / zero;
    NDArray last = sin(bad * 2.f);
    const std::string text = test::error_of<NumericError>([&] { last.wait(); });
    EXPECT_TRUE(test::contains(text, "[div]")) << text;
    EXPECT_TRUE(test::contains(text, "modes_test.cc:" + std::to_string(line))) << text;
    const std::string shape = detail::concat("f32 ", x.shape());
    EXPECT_TRUE(test::contains(text, shape + ", " + shape)) << text;
    EXPECT_EQ(1.f, x[0].item<float>());
    test::error_of<NumericError>([&] { e_.wait_all(); });
  }
  set_check_numerics(false);
}

TEST_P(Modes, CheckedNumericsLetResultsPassThatAreInfiniteByDefinition) {
  struct Checked {
    Checked() { set_check_numerics(true); }
    ~Checked() { set_check_numerics(false); }
  } checked;
  const NDArray q = ones({1, 2, 3, 4}), mask = array({true, false, false}, {3, 1});
  const NDArray y = scaled_dot_product_attention(q, q, q, mask);  // rows 1 and 2 see no key
  EXPECT_EQ(2 * 4.f, sum(y).item<float>());
  const NDArray dropped = attention_with_dropout(q, q, q, 0.5, mask);
  dropped.wait();
  const NDArray x = array({1.f, 3.f, 2.f});
  EXPECT_EQ((std::vector<float>{-INFINITY, 1, 3}), cummax(x, 0, true).to_vector<float>());
  EXPECT_EQ((std::vector<float>{INFINITY, 1, 1}), cummin(x, 0, true).to_vector<float>());
  EXPECT_EQ(-INFINITY, logcumsumexp(x, 0, true)[0].item<float>());
  EXPECT_EQ(-INFINITY, logsumexp(zeros({2, 0}), 1)[0].item<float>());
  EXPECT_EQ(-INFINITY, linalg::slogdet(zeros({2, 2})).logabsdet.item<float>());
  // Results that ought to be finite are still checked, beside singular matrices too.
  const NDArray overflows = array({{{1.f, 1.f}, {1.f, 1.f}}, {{1.f, 3e38f}, {1.f, -3e38f}}});
  const NDArray logarithms = linalg::slogdet(overflows).logabsdet;
  EXPECT_TRUE(test::contains(test::error_of<NumericError>([&] { logarithms.wait(); }), "[linalg_slogdet]"));
  test::error_of<NumericError>([&] { e_.wait_all(); });
  const NDArray large = full({1, 1, 2, 2}, 3e38);
  const NDArray bad = scaled_dot_product_attention(large, large, large);
  EXPECT_TRUE(test::contains(test::error_of<NumericError>([&] { bad.wait(); }), "[attention]"));
  test::error_of<NumericError>([&] { e_.wait_all(); });
}

}  // namespace
}  // namespace mx
