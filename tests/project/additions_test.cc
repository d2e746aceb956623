// The additions of the example seq2seq_addition.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "examples/text/additions.h"

namespace mx::examples {
namespace {

std::set<std::pair<int64_t, int64_t>> pairs_of(const std::vector<Addition>& additions) {
  std::set<std::pair<int64_t, int64_t>> pairs;
  for (const Addition& addition : additions) pairs.emplace(addition.a, addition.b);
  return pairs;
}

TEST(AdditionsOfTheExample, TrainingNeverHasThoseOfTheTestInNeitherOrder) {
  const Additions additions(2, 1);
  const std::vector<Addition> test = additions.test(2000);
  const auto tested = pairs_of(test);
  EXPECT_EQ(tested.size(), test.size());  // all are different
  EXPECT_GT(tested.size(), 700u);         // of 10,000 pairs about a tenth
  EXPECT_LT(tested.size(), 1300u);
  for (int64_t step = 1; step <= 200; ++step) {
    for (const Addition& addition : additions.training(step, 500)) {
      EXPECT_EQ(tested.count({addition.a, addition.b}), 0u);
      EXPECT_EQ(tested.count({addition.b, addition.a}), 0u);
    }
  }
}

TEST(AdditionsOfTheExample, HaveAllNumbersOfDigits) {
  const Additions additions(3, 7);
  std::set<size_t> digits;
  for (const Addition& addition : additions.training(1, 1000))
    digits.insert(std::to_string(addition.a).size());
  EXPECT_EQ(digits, (std::set<size_t>{1, 2, 3}));
}

TEST(AdditionsOfTheExample, DependOnTheStepAndTheSeedOnly) {
  const Additions additions(3, 7), same(3, 7), other(3, 8);
  EXPECT_EQ(additions.training(5, 50), same.training(5, 50));
  EXPECT_EQ(additions.test(50), same.test(50));
  EXPECT_NE(additions.training(5, 50), additions.training(6, 50));
  EXPECT_NE(additions.training(5, 50), other.training(5, 50));
}

TEST(AdditionsOfTheExample, BecomeColumnsOfTokens) {
  const std::vector<Addition> additions{{345, 87}, {0, 9}};
  const AdditionBatch batch = batch_of(additions);
  EXPECT_EQ(batch.lengths, (std::vector<int64_t>{7, 4}));
  EXPECT_EQ(batch.question.shape(), Shape({7, 2}));
  EXPECT_EQ(batch.question.to_vector<int64_t>(),
            (std::vector<int64_t>{3, 0, 4, 10, 5, 9, 10, 11, 8, 0, 7, 0, 11, 0}));
  const int64_t end = kAdditionEnd, none = kAdditionIgnore;
  EXPECT_EQ(batch.input.to_vector<int64_t>(), (std::vector<int64_t>{end, end, 4, 9, 3, end, 2, end}));
  EXPECT_EQ(batch.target.to_vector<int64_t>(), (std::vector<int64_t>{4, 9, 3, end, 2, none, end, none}));
  EXPECT_EQ(batch.tokens, 7 + 4 + 4 + 2);
  EXPECT_EQ(answer_of(std::vector<int64_t>{4, 3, 2, end, 7}), additions[0].answer());
}

TEST(AdditionsOfTheExample, RefuseOtherNumbersOfDigits) {
  EXPECT_THROW(Additions(1, 1), InvalidArgument);
  EXPECT_THROW(Additions(10, 1), InvalidArgument);
  EXPECT_THROW(batch_of({}), InvalidArgument);
}

}  // namespace
}  // namespace mx::examples
