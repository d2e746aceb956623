// Tests of indexing with arrays: results are compared with NumPy's (golden/make_indexing.py), and a named
// read never shows later values.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <latch>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "operators/operators.h"
#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"
#include "tests/support/processors.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;

const char* const kGolden =
#include <golden_indexing.inc>
    ;

Shape parse_shape(const std::string& text) {
  Shape shape;
  if (text == "-") return shape;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, 'x');) shape.push_back(std::stoll(part));
  return shape;
}

std::string hash_of(const NDArray& a) {
  uint64_t h = 17;
  for (int64_t x : a.to_vector<int64_t>()) h = h * 1000003 + static_cast<uint64_t>(x);
  std::ostringstream out;
  out << std::hex << h;
  return out.str();
}

struct Entries {
  std::vector<NDArray> arrays;  // referred to by the indices
  std::vector<Index> list;

  Entries(const std::vector<std::string>& texts, DType type) {
    arrays.reserve(texts.size());
    for (const std::string& text : texts) add(text, type);
  }
  void add(const std::string& text, DType type) {
    if (text == "e") return list.push_back(ellipsis);
    if (text == "n") return list.push_back(newaxis);
    if (text[0] == 'a' || text[0] == 'm') {
      const size_t cut = text.find('/');
      std::vector<int64_t> values;
      if (text[0] == 'm') {
        for (char c : text.substr(cut + 1)) values.push_back(c - '0');
      } else {
        std::istringstream in(text.substr(cut + 1));
        for (std::string part; std::getline(in, part, ',');) values.push_back(std::stoll(part));
      }
      arrays.push_back(
          array(values).to(text[0] == 'm' ? bool_ : type).reshape(parse_shape(text.substr(1, cut - 1))));
      return list.push_back(arrays.back());
    }
    if (text.find(':') == std::string::npos) return list.push_back(int64_t{std::stoll(text)});
    std::istringstream in(text);
    std::optional<int64_t> limits[3];
    for (auto& limit : limits) {
      std::string part;
      std::getline(in, part, ':');
      if (part != "_") limit = std::stoll(part);
    }
    list.push_back(Slice{limits[0], limits[1], *limits[2]});
  }
  View of(const NDArray& a) const {
    const std::vector<Index>& l = list;
    switch (l.size()) {
      case 1:
        return a[{l[0]}];
      case 2:
        return a[{l[0], l[1]}];
      case 3:
        return a[{l[0], l[1], l[2]}];
      case 4:
        return a[{l[0], l[1], l[2], l[3]}];
      case 5:
        return a[{l[0], l[1], l[2], l[3], l[4]}];
      default:
        return a[{l[0], l[1], l[2], l[3], l[4], l[5]}];
    }
  }
};

void expect_golden(Context context, DType index_type) {
  std::istringstream cases(kGolden);
  int count = 0;
  for (std::string line; std::getline(cases, line);) {
    if (line.empty()) continue;
    SCOPED_TRACE(line);
    std::istringstream words(line);
    std::string shape, word, result_shape, result_hash, values_shape, hash_then;
    words >> shape;
    std::vector<std::string> texts;
    while (words >> word && word != "=") texts.push_back(word);
    words >> result_shape >> result_hash >> values_shape >> hash_then;
    const Shape dims = parse_shape(shape);
    NDArray base = arange(dims.numel()).reshape(dims).to(context);
    const Entries entries(texts, index_type);
    const NDArray result = entries.of(base);
    ASSERT_EQ(parse_shape(result_shape), result.shape());
    ASSERT_EQ(result_hash, hash_of(result));
    const Shape given = parse_shape(values_shape);
    entries.of(base) = (arange(given.numel()) * -1 - 1).reshape(given);
    ASSERT_EQ(hash_then, hash_of(base));
    ++count;
  }
  EXPECT_GE(count, 400);
}

TEST(AdvancedIndexing, ReadsAndWritesAsNumPy) { expect_golden(cpu(), i64); }
TEST(AdvancedIndexing, TakesNarrowIndices) { expect_golden(cpu(), i8); }
TEST(AdvancedIndexing, ReadsAndWritesAsNumPyOnADevice) { expect_golden(virt(0), i32); }

TEST(AdvancedIndexing, ReadsTheValuesOfNow) {
  NDArray a = arange(10);
  const NDArray i = array<int64_t>({3, 3, 7});
  const NDArray b = a[i];
  NDArray c;
  c = a[i];
  std::vector<NDArray> list;
  list.push_back(a[i]);
  a[i] = -1;
  for (const NDArray& x : {b, c, list[0]}) EXPECT_EQ((std::vector<int64_t>{3, 3, 7}), x.to_vector<int64_t>());
  EXPECT_EQ((std::vector<int64_t>{-1, -1, -1}), NDArray(a[i]).to_vector<int64_t>());
  EXPECT_FALSE(b.shares_memory(a));
}

// A named View (auto v = a[i]) either has the values at the time of its line, or throws an error that says
// what to write instead. It never has later values.
TEST(AdvancedIndexing, AReadWithANameIsNeverOfLaterValues) {
  for (const Context context : {cpu(), virt(0)}) {
    const auto make = [&] { return arange(10).to(context); };
    NDArray a = make(), i = array<int64_t>({3, 3, 7}).to(context);
    const auto refused = [&](const NDArray& v, int line) {
      const std::string text = error_of<InvalidState>([&] { v.to_vector<int64_t>(); });
      EXPECT_TRUE(contains(text, "write `NDArray b = a[indices]`")) << text;
      EXPECT_TRUE(contains(text, "advanced_indexing_test.cc:" + std::to_string(line))) << text;
    };
    auto later = a[i];
    const int line = __LINE__ - 1;
    auto used = a[i];
    EXPECT_EQ((std::vector<int64_t>{3, 3, 7}), used.to_vector<int64_t>());
    const View kept = View(a[i]);
    const View copy(kept);  // the copy performs the read
    a += 100;
    refused(later, line);
    refused(later, line);
    EXPECT_EQ((Shape{3}), later.shape());
    EXPECT_EQ(context, later.context());
    EXPECT_EQ((std::vector<int64_t>{3, 3, 7}), used.to_vector<int64_t>());
    EXPECT_EQ((std::vector<int64_t>{3, 3, 7}), copy.to_vector<int64_t>());
    EXPECT_EQ((std::vector<int64_t>{3, 3, 7}), kept.to_vector<int64_t>());

    a = make();
    const auto of_indices = a[i];
    const int of_line = __LINE__ - 1;
    i.fill_(0);
    refused(of_indices, of_line);
  }
}

TEST(AdvancedIndexing, AReadOfWhatChangesUnseenIsOfItsLine) {
  NDArray a = arange(10), i = array<int64_t>({3, 7});
  const std::vector<int64_t> expected{3, 7};
  {
    NDArray host = a.clone();
    int64_t* const memory = host.mutable_data<int64_t>();
    auto v = host[i];
    v.wait();
    memory[3] = -1;
    EXPECT_EQ(expected, v.to_vector<int64_t>());
  }
  {
    NDArray by_hand = a.clone();
    const Var var = by_hand.var();
    auto v = by_hand[i];
    current_engine().push([by_hand]() mutable { by_hand.impl().storage->data(); }, {.updates = {var}});
    EXPECT_EQ(expected, v.to_vector<int64_t>());
  }
  {
    Engine engine;
    const EngineScope scope(engine);
    NDArray replayed = arange(10);
    const NDArray indices = array<int64_t>({3, 7});
    Segment segment = engine.record([&] { replayed += 1; });
    auto v = replayed[indices];
    segment.replay();
    EXPECT_EQ(expected, v.to_vector<int64_t>());
    EXPECT_EQ(4, replayed[3].item<int64_t>());
  }
}

TEST(AdvancedIndexing, AViewWithANameIsAHandle) {
  const NDArray a = arange(6), i = array<int64_t>({0, 1});
  auto v = a[i];
  v += 10;  // changes the values that were read, not a
  EXPECT_EQ((std::vector<int64_t>{10, 11}), v.to_vector<int64_t>());
  v = a[{Slice{4, {}}}];
  EXPECT_FALSE(v.advanced());
  EXPECT_EQ((std::vector<int64_t>{4, 5}), v.to_vector<int64_t>());
  v = a[i];
  auto other = a[i];
  const NDArray stays = other;
  other = a[2];
  EXPECT_EQ((std::vector<int64_t>{0, 1}), stays.to_vector<int64_t>());
  EXPECT_EQ((std::vector<int64_t>{0, 1, 2, 3, 4, 5}), a.to_vector<int64_t>()) << "nothing has been written";
  NDArray both = zeros({2}, i64);
  both[i] = a[i] = 7;
  EXPECT_EQ((std::vector<int64_t>{7, 7}), both.to_vector<int64_t>());
  EXPECT_EQ(7, a[1].item<int64_t>());
}

TEST(AdvancedIndexing, ThreadsMayLookAtAReadBeforeItIsDone) {
  constexpr int kThreads = 4;
  const NDArray a = arange(10), i = array<int64_t>({3, 7});
  for (int round = 0; round < 200; ++round) {
    const auto v = a[i];
    std::latch start(kThreads);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        start.arrive_and_wait();
        if (t % 2 == 0) {
          EXPECT_EQ(cpu(), v.context());
          EXPECT_EQ(Shape{2}, v.shape());
        }
        EXPECT_EQ((std::vector<int64_t>{3, 7}), v.to_vector<int64_t>());
      });
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(AdvancedIndexing, UpdatesWhatItPointsAt) {
  NDArray a = zeros({3, 4});
  const NDArray rows = array<int64_t>({0, 2}), mask = array<int64_t>({1, 0, 0, 1}).to(bool_);
  a[rows] += 1;
  a[{colon, mask}] *= 5;
  a[{rows, 1}] = array<int64_t>({{7, 8}});  // a leading dimension of 1, other types
  EXPECT_EQ((std::vector<float>{5, 7, 1, 5, 0, 0, 0, 0, 5, 8, 1, 5}), a.to_vector<float>());
  a[a > 4.f] = a[{Slice{0, 1}, Slice{2, 3}}];  // a (1, 1) from the same memory
  EXPECT_EQ((std::vector<float>{1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1}), a.to_vector<float>());
  a[{ellipsis, mask}] = a[{0, mask}];
  a[{ellipsis}] = 3;
  EXPECT_EQ(std::vector<float>(12, 3), a.to_vector<float>());
}

// Converting a mask to positions would take eight bytes per selected element and dimension. An assignment
// does not need the positions.
TEST(AdvancedIndexing, AMaskIsNotTurnedIntoPositions) {
  if (!test::larger_operations_are_pushed()) GTEST_SKIP() << "one processor";
  Engine engine(test::options_for_counting());
  const EngineScope scope(engine);
  NDArray a = arange(120000).to(f32).reshape({300, 400});
  const NDArray mask = a > 60000.f, values = ones({59999});
  const auto operations = [&](const auto& f) {
    uint64_t fewest = UINT64_MAX;
    for (int i = 0; i < 20; ++i) {
      engine.wait_all();
      const uint64_t before = engine.stats().pushed;
      f();
      fewest = std::min(fewest, engine.stats().pushed - before);
    }
    engine.wait_all();
    return fewest;
  };
  // Two operations each, and the deletion of the temporary array.
  EXPECT_GE(3u, operations([&] { a[mask] = 0; })) << "count, choose";
  EXPECT_GE(3u, operations([&] { a[mask] = values; })) << "count, scatter";
  EXPECT_GE(4u, operations([&] { NDArray(a[mask]).wait(); })) << "count, select";
}

TEST(AdvancedIndexing, AMaskOfSomeDimensionsAssigns) {
  const NDArray rows = array<int64_t>({0, 1}).to(bool_), middle = array<int64_t>({1, 0, 1}).to(bool_);
  const NDArray pairs = array<int64_t>({{0, 1, 0}, {1, 0, 0}}).to(bool_);
  NDArray a = zeros({2, 3, 2});
  a[rows] = 1;
  a[{colon, middle}] = 2;
  a[pairs] = 3;
  EXPECT_EQ((std::vector<float>{2, 2, 3, 3, 2, 2, 3, 3, 1, 1, 2, 2}), a.to_vector<float>());
  a[{ellipsis, rows}] = 4;
  EXPECT_EQ((std::vector<float>{2, 4, 3, 4, 2, 4, 3, 4, 1, 4, 2, 4}), a.to_vector<float>());
  a[pairs] = array({5.f, 6.f});
  a[rows] = array({{7.f}, {8.f}, {9.f}});
  EXPECT_EQ((std::vector<float>{2, 4, 5, 6, 2, 4, 7, 7, 8, 8, 9, 9}), a.to_vector<float>());
  a[zeros({2, 3, 2}, bool_)] = 1;
  EXPECT_EQ((Shape{0}), NDArray(a[zeros({2, 3, 2}, bool_)]).shape());
  EXPECT_EQ((std::vector<float>{5, 6, 7, 7}), NDArray(a[pairs]).to_vector<float>());
  EXPECT_EQ((std::vector<float>{4, 6, 4, 7, 8, 9}), NDArray(a[{ellipsis, rows}]).to_vector<float>());
  // Assigns to a reversed view and to an array of f16, and rejects values of a wrong number.
  NDArray back = a.slice(2, Slice{{}, {}, -1});
  back[back > 6.f] = -1;
  EXPECT_EQ((std::vector<float>{2, 4, 5, 6, 2, 4, -1, -1, -1, -1, -1, -1}), a.to_vector<float>());
  NDArray half = zeros({3}, f16);
  half[middle] = 2.5;
  EXPECT_EQ((std::vector<float>{2.5, 0, 2.5}), half.to_vector<float>());
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { half[middle] = ones({3}); }), "broadcast"));
}

class IndexingEngine : public test::EngineTest {};

TEST_P(IndexingEngine, GivesTheSame) {
  EngineScope scope(e_);
  NDArray a = arange(60000).reshape({200, 300}).to(f32);
  const NDArray rows = (arange(500) * 37) % 200, columns = (arange(500) * 11) % 300;
  for (int k = 0; k < 5; ++k) {
    a[{rows, columns}] = a[{columns % 200, rows}] + 1.f;
    index_add_(a, rows, a[{columns % 200}] % 7);
  }
  double sum = 0;
  uint64_t hash = 17;
  for (float x : a.to_vector<float>()) sum += x, hash = hash * 31 + static_cast<uint64_t>(x);
  // The same by hand.
  std::vector<float> m(60000);
  for (size_t i = 0; i < m.size(); ++i) m[i] = static_cast<float>(i);
  const auto row = [](size_t i) { return i * 37 % 200; };
  const auto column = [](size_t i) { return i * 11 % 300; };
  for (int k = 0; k < 5; ++k) {
    std::vector<float> before = m;
    for (size_t i = 0; i < 500; ++i) m[row(i) * 300 + column(i)] = before[column(i) % 200 * 300 + row(i)] + 1;
    before = m;
    for (size_t i = 0; i < 500; ++i)
      for (size_t j = 0; j < 300; ++j)
        m[row(i) * 300 + j] += std::fmod(before[column(i) % 200 * 300 + j], 7.f);
  }
  double expected_sum = 0;
  uint64_t expected_hash = 17;
  for (float x : m) expected_sum += x, expected_hash = expected_hash * 31 + static_cast<uint64_t>(x);
  EXPECT_EQ(expected_sum, sum);
  EXPECT_EQ(expected_hash, hash);
}

INSTANTIATE_TEST_SUITE_P(All, IndexingEngine, ::testing::ValuesIn(test::all_cases()), test::CaseName());

}  // namespace
}  // namespace mx
