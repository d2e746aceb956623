// Views: random programs of view operations give NumPy's results (golden/make_views.py); and errors of views.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ndarray/ndarray.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;

const char kGoldenViews[] =
#include <golden_views.inc>
    ;

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

Shape numbers(const std::string& text) {
  Shape list;
  if (text != "-")
    for (const std::string& part : split(text, ',')) list.push_back(std::stoll(part));
  return list;
}

Slice slice_of(const std::string& text) {
  const std::vector<std::string> parts = split(text, ':');
  Slice slice;
  if (!parts[0].empty()) slice.start = std::stoll(parts[0]);
  if (!parts[1].empty()) slice.stop = std::stoll(parts[1]);
  slice.step = std::stoll(parts[2]);
  return slice;
}

NDArray index(const NDArray& a, const std::string& text) {
  std::vector<Index> i;
  if (text != "-") {
    for (const std::string& word : split(text, ',')) {
      switch (word[0]) {
        case 'i':
          i.emplace_back(int64_t{std::stoll(word.substr(1))});
          break;
        case 's':
          i.emplace_back(slice_of(word.substr(1)));
          break;
        case 'e':
          i.emplace_back(ellipsis);
          break;
        default:
          i.emplace_back(newaxis);
      }
    }
  }
  switch (i.size()) {
    case 0:
      return a[std::initializer_list<Index>{}];
    case 1:
      return a[{i[0]}];
    case 2:
      return a[{i[0], i[1]}];
    case 3:
      return a[{i[0], i[1], i[2]}];
    case 4:
      return a[{i[0], i[1], i[2], i[3]}];
    default:
      return a[{i[0], i[1], i[2], i[3], i[4]}];
  }
}

NDArray apply(const NDArray& a, const std::string& op, const std::vector<std::string>& args) {
  const auto number = [&](size_t i) { return int64_t{std::stoll(args[i])}; };
  if (op == "index") return index(a, args[0]);
  if (op == "slice") return a.slice(number(0), slice_of(args[1]));
  if (op == "select") return a.select(number(0), number(1));
  if (op == "transpose") return a.transpose(numbers(args[0]));
  if (op == "swap") return a.swap_axes(number(0), number(1));
  if (op == "move") return a.move_axis(number(0), number(1));
  if (op == "reshape") return a.reshape(numbers(args[0]));
  if (op == "squeeze") return args[0] == "-" ? a.squeeze() : a.squeeze(number(0));
  if (op == "expand") return a.expand_dims(number(0));
  if (op == "broadcast") return a.broadcast_to(numbers(args[0]));
  if (op == "diagonal") return a.diagonal(number(0), number(1), number(2));
  ADD_FAILURE() << "no operation " << op;
  return a;
}

std::string hash(const NDArray& a) {
  uint64_t h = 0xcbf29ce484222325;
  const auto add = [&h](int64_t number) {
    for (int i = 0; i < 64; i += 8) h = (h ^ (static_cast<uint64_t>(number) >> i & 0xff)) * 0x100000001b3;
  };
  for (int64_t size : a.shape()) add(size);
  for (int64_t value : a.to_vector<int64_t>()) add(value);
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(h));
  return text;
}

// A view that repeats elements must not be written, so this writes one of each.
void fill_once(const NDArray& view, const std::string& program) {
  NDArray once = view;
  for (int i = 0; i < view.rank(); ++i)
    if (view.strides()[i] == 0 && view.shape()[i] > 1) once = once.slice(i, {0, 1});
  if (once.numel() < view.numel()) {
    EXPECT_THROW(NDArray(view).fill_(-1), InvalidArgument) << program;
  }
  once.fill_(-1);
}

void run_golden(Context context) {
  std::istringstream in(kGoldenViews);
  NDArray base, view;
  int programs = 0;
  std::string program;
  for (std::string line; std::getline(in, line);) {
    program += line + '\n';
    std::istringstream words(line);
    std::string op;
    words >> op;
    std::vector<std::string> args;
    for (std::string word; words >> word && word != "|";) args.push_back(word);
    if (op == "base") {
      program = line + '\n';
      const Shape shape = numbers(args[0]);
      base = arange(shape.numel()).reshape(shape).to(context);
      view = base;
      ++programs;
    } else if (op == "share") {
      if (args[0] != "2") {
        EXPECT_EQ(args[0] == "1", view.shares_memory(base)) << program;
      }
      if (args[0] == "1") fill_once(view, program);
      EXPECT_EQ(args[1], hash(base)) << program;
    } else {
      view = apply(view, op, args);
      std::string shape, expected;
      words >> shape >> expected;
      ASSERT_EQ(numbers(shape), view.shape()) << program;
      ASSERT_EQ(expected, hash(view)) << program;
      EXPECT_EQ(expected, hash(view.clone())) << program;
    }
  }
  EXPECT_GT(programs, 300);
}

TEST(View, RandomProgramsGiveWhatNumPyGives) { run_golden(cpu()); }
TEST(View, RandomProgramsOnADeviceGiveWhatNumPyGives) { run_golden(virt(0)); }

NDArray counting(const Shape& shape) { return arange(shape.numel()).reshape(shape); }

TEST(View, AssigningToAViewChangesTheBaseForEverybody) {
  NDArray a = counting({2, 3});
  const NDArray other = a;
  a[0] = 7;
  a[{1, Slice{0, 2}}] = array<int64_t>({8, 9});
  a[{colon, 2}] = a[{colon, 1}];
  EXPECT_EQ((std::vector<int64_t>{7, 7, 7, 8, 9, 9}), other.to_vector<int64_t>());
}

TEST(View, AssigningAHandleNamesAnotherArray) {
  NDArray a = counting({3});
  const NDArray b = a;
  a = zeros({3});
  EXPECT_EQ((std::vector<int64_t>{0, 1, 2}), b.to_vector<int64_t>());
}

// Assignment writes to the viewed array only if the view is a temporary.
static_assert(std::is_assignable_v<View, const NDArray&> && std::is_assignable_v<View, int>);
static_assert(std::is_assignable_v<View&, const NDArray&> && std::is_assignable_v<View&, View>);
static_assert(!std::is_assignable_v<View&, int>, "a handle does not name a number");
static_assert(!std::is_assignable_v<const View&, const NDArray&>);
static_assert(!std::is_assignable_v<NDArray, const NDArray&>, "a.transpose() = b would do nothing");

TEST(Shape, NegativeIndicesCountFromTheEnd) {
  const Shape shape = zeros({2, 3, 4}).shape();
  EXPECT_EQ(4, shape[-1]);
  EXPECT_EQ(2, shape[-3]);
  Shape changed = shape;
  changed[-1] = 7;
  EXPECT_EQ((Shape{2, 3, 7}), changed);
  error_of<InvalidArgument>([&] { (void)shape[-4]; });
}

TEST(View, AssignedToItselfKeepsItsArray) {
  NDArray a = array({1.f, 2.f});
  auto v = a[0];
  auto& same = v;
  v = same;
  EXPECT_EQ(1.f, v.item<float>());
  v = std::move(same);
  EXPECT_EQ(1.f, v.item<float>());
}

TEST(View, AssigningToAViewWithANameNamesAnotherArray) {
  const NDArray x = counting({3, 2}), row = array<int64_t>({7, 8});
  const std::vector<int64_t> before = x.to_vector<int64_t>();
  auto best = x[0];
  best = x[2];
  EXPECT_EQ((std::vector<int64_t>{4, 5}), best.to_vector<int64_t>());
  auto&& same = x[1];
  same = x[2];
  same = row;
  auto from = x[1];
  best = from;
  best = std::move(from);
  EXPECT_EQ((std::vector<int64_t>{2, 3}), best.to_vector<int64_t>());
  best = row;
  EXPECT_TRUE(best.shares_memory(row));
  NDArray handle = x[0];
  handle = x[1];
  View other = x[0];
  std::swap(best, other);
  EXPECT_TRUE(best.shares_memory(x) && other.shares_memory(row));
  const View& alias = best;
  best = alias;
  EXPECT_EQ((std::vector<int64_t>{0, 1}), best.to_vector<int64_t>());
  EXPECT_EQ(before, x.to_vector<int64_t>()) << "nothing has been written";
  x[0] = x[1] = row;
  best.fill_(1);
  best[1] = 2;
  EXPECT_EQ((std::vector<int64_t>{1, 2, 7, 8, 4, 5}), x.to_vector<int64_t>());
}

TEST(View, OverlappingAssignmentIsAsIfCopiedFirst) {
  const std::vector<Slice> whole = {{},          {{}, {}, -1}, {1, {}, 1}, {{}, -1, 1},
                                    {{}, {}, 2}, {1, {}, 2},   {{}, 5, 1}, {5, {}, 1},
                                    {4, {}, -1}, {2, 7, 1},    {6, 1, -1}};
  for (const Context context : {cpu(), virt(0)}) {
    for (const Slice& to : whole) {
      for (const Slice& from : whole) {
        NDArray a = arange(10).to(context);
        const NDArray target = a[{to}], source = a[{from}];
        if (target.shape() != source.shape()) continue;
        NDArray expected = arange(10).to(context);
        expected[{to}] = arange(10).to(context)[{from}];
        a[{to}] = a[{from}];
        EXPECT_EQ(expected.to_vector<int64_t>(), a.to_vector<int64_t>());
      }
    }
    NDArray square = counting({4, 4}).to(context);
    square[{colon, colon}] = square.transpose();
    EXPECT_EQ(counting({4, 4}).transpose().to_vector<int64_t>(), square.to_vector<int64_t>());
    square[{colon, colon}] = square[1];  // one of its own rows, broadcast
    EXPECT_EQ((std::vector<int64_t>{1, 5, 9, 13, 1, 5, 9, 13, 1, 5, 9, 13, 1, 5, 9, 13}),
              square.to_vector<int64_t>());
  }
}

TEST(View, LargeOverlappingAssignmentIsAsIfCopiedFirst) {
  const int64_t n = 100000;
  NDArray a = arange(n);
  a[{Slice{1, {}}}] = a[{Slice{{}, -1}}];
  std::vector<int64_t> expected(n);
  for (int64_t i = 0; i < n; ++i) expected[static_cast<size_t>(i)] = i == 0 ? 0 : i - 1;
  EXPECT_EQ(expected, a.to_vector<int64_t>());
  a[{Slice{{}, {}, -1}}] = a;
  for (int64_t i = 0; i < n; ++i) expected[static_cast<size_t>(n - 1 - i)] = i == 0 ? 0 : i - 1;
  EXPECT_EQ(expected, a.to_vector<int64_t>());
}

TEST(View, NumbersBeyondTheEndsThrowAndSayWhatFits) {
  const NDArray a = counting({2, 3});
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { a[2]; }),
                       "[index] expected an index from -2 to 1 in dimension 0 of shape (2, 3), got 2"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] {
                         a[{0, -4}];
                       }),
                       "dimension 1 of shape (2, 3), got -4"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] {
                         a[{0, 0, 0}];
                       }),
                       "at most 2 indices for shape (2, 3)"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { a[{ellipsis, ellipsis}]; }), "one ellipsis at most"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { a[{Slice{0, 1, 0}}]; }), "a step other than 0"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { a.select(2, 0); }), "an axis from -2 to 1"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { counting({})[0]; }), "rank 0"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { counting({0, 2})[0]; }), "of shape (0, 2), got 0"));
}

TEST(View, ShapesThatDoNotFitThrow) {
  const NDArray a = counting({2, 3});
  error_of<InvalidArgument>([&] { a.transpose({0}); });
  error_of<InvalidArgument>([&] { a.transpose({0, 0}); });
  error_of<InvalidArgument>([&] { a.reshape({4}); });
  error_of<InvalidArgument>([&] { a.reshape({-1, -1}); });
  error_of<InvalidArgument>([&] { a.reshape({-2, -3}); });
  error_of<InvalidArgument>([&] { a.reshape({-1, 0}); });
  error_of<InvalidArgument>([&] { a.reshape({INT64_MAX, INT64_MAX}); });
  error_of<InvalidArgument>([&] { a.squeeze(0); });
  error_of<InvalidArgument>([&] { a.broadcast_to({3, 3}); });
  error_of<InvalidArgument>([&] { a.broadcast_to({3}); });
  error_of<InvalidArgument>([&] { a.broadcast_to({INT64_MAX, 2, 3}); });
  error_of<InvalidArgument>([&] { a.diagonal(0, 1, 1); });
  error_of<InvalidArgument>([&] { a.expand_dims(4); });
  NDArray deep = counting({1});
  for (int i = 1; i < kMaxRank; ++i) deep = deep.expand_dims(0);
  error_of<InvalidArgument>([&] { deep.expand_dims(0); });
  NDArray target = counting({2, 3});
  const std::string text = error_of<InvalidArgument>([&] { target[0] = counting({2}); });
  EXPECT_TRUE(contains(text, "(3,)") && contains(text, "(2,)")) << text;
}

TEST(View, ADiagonalFarOutsideIsEmpty) {
  for (int64_t offset : {INT64_MIN, int64_t{-4}, int64_t{4}, INT64_MAX})
    EXPECT_EQ(Shape({0}), counting({3, 4}).diagonal(offset).shape()) << offset;
}

TEST(View, AsStridedStaysInsideTheMemory) {
  const NDArray a = counting({12});
  EXPECT_EQ((std::vector<int64_t>{2, 3, 4, 3, 4, 5}), a.as_strided({2, 3}, {1, 1}, 2).to_vector<int64_t>());
  EXPECT_EQ((std::vector<int64_t>{11, 7, 3}), a.as_strided({3}, {-4}, 11).to_vector<int64_t>());
  EXPECT_EQ(Shape({0, 5}), a.as_strided({0, 5}, {100, 100}, 1000).shape());
  error_of<InvalidArgument>([&] { a.as_strided({13}, {1}, 0); });
  error_of<InvalidArgument>([&] { a.as_strided({2}, {1}, 11); });
  error_of<InvalidArgument>([&] { a.as_strided({2}, {-1}, 0); });
  error_of<InvalidArgument>([&] { a.as_strided({}, {}, 12); });
  error_of<InvalidArgument>([&] { a.as_strided({}, {}, -1); });
  error_of<InvalidArgument>([&] { a.as_strided({3}, {INT64_MAX}, 0); });
  error_of<InvalidArgument>([&] { a.as_strided({2, 2}, {1}, 0); });
  error_of<InvalidArgument>([&] { a.as_strided({-1}, {1}, 0); });
}

TEST(View, IndexingWithArraysNeedsTheLayerAbove) {
  const NDArray a = counting({3}), rows = array<int64_t>({0, 2});
  EXPECT_TRUE(contains(error_of<InvalidState>([&] { a[rows]; }), "mx::operators"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { a[ones({2})]; }), "integers or bool"));
}

}  // namespace
}  // namespace mx
