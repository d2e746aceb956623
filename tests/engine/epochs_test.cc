// Epochs: a wait that closes an epoch ends when the operations before it have ended, and does not wait for
// later ones.
#include "engine/detail/epochs.h"

#include <gtest/gtest.h>

namespace mx {
namespace {

using detail::Epochs;

TEST(Epochs, AWaitEndsWithWhatWasThere) {
  Epochs epochs;
  const auto first = epochs.open();
  epochs.add(first);
  const uint64_t end = epochs.close();
  const auto second = epochs.open();
  epochs.add(second);
  EXPECT_FALSE(epochs.over(end));
  EXPECT_TRUE(epochs.remove(first));
  EXPECT_TRUE(epochs.over(end));
  EXPECT_FALSE(epochs.none_in_flight());
  EXPECT_FALSE(epochs.remove(second));
  EXPECT_TRUE(epochs.none_in_flight());
}

TEST(Epochs, ASecondWaitDoesNotJoinTheOpenEpoch) {
  Epochs epochs;
  const auto first = epochs.open();
  epochs.add(first);
  const uint64_t one = epochs.close();
  const uint64_t two = epochs.close();  // nothing was added in between
  epochs.add(epochs.open());            // later than both
  EXPECT_FALSE(epochs.over(two));
  EXPECT_TRUE(epochs.remove(first));
  EXPECT_TRUE(epochs.over(one));
  EXPECT_TRUE(epochs.over(two));
}

TEST(Epochs, AWaitForNothingIsOver) {
  Epochs epochs;
  EXPECT_TRUE(epochs.over(epochs.close()));
  EXPECT_TRUE(epochs.over(epochs.close()));
}

// An operation that never ends keeps one tag occupied. The tags of the epochs after it are still reused.
TEST(Epochs, TagsOfEmptyEpochsAreUsedAgain) {
  Epochs epochs;
  const auto stuck = epochs.open();
  epochs.add(stuck);
  const uint64_t all = epochs.close();
  for (int i = 0; i < 200'000; ++i) {
    ASSERT_TRUE(epochs.has_room());
    const auto tag = epochs.open();
    epochs.add(tag);
    const uint64_t end = epochs.close();
    EXPECT_FALSE(epochs.remove(tag));  // not the oldest
    ASSERT_FALSE(epochs.over(end));
  }
  EXPECT_TRUE(epochs.remove(stuck));
  EXPECT_TRUE(epochs.over(all));
  EXPECT_TRUE(epochs.none_in_flight());
}

TEST(Epochs, ManyAtOnceTakeMoreMemory) {
  Epochs epochs;
  std::vector<Epochs::Tag> tags;
  std::vector<uint64_t> ends;
  for (int i = 0; i < 1000; ++i) {
    if (!epochs.has_room()) {
      std::vector<Epochs::Entry> larger(2 * epochs.size());
      epochs.grow(larger);
    }
    ASSERT_TRUE(epochs.has_room());
    tags.push_back(epochs.open());
    epochs.add(tags.back());
    ends.push_back(epochs.close());
  }
  for (size_t i = tags.size(); i-- > 1;) EXPECT_FALSE(epochs.remove(tags[i]));  // all but the oldest
  EXPECT_FALSE(epochs.over(ends.front()));
  EXPECT_TRUE(epochs.remove(tags.front()));
  EXPECT_TRUE(epochs.over(ends.back()));
}

}  // namespace
}  // namespace mx
