// Compares the ready queue with a list that is searched linearly.
#include "engine/detail/ready_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "engine/detail/pools.h"

namespace mx::detail {
namespace {

class Queue : public ::testing::Test {
 protected:
  Op* new_op(int priority) {
    if (chain_ == nullptr) chain_ = pool_.take_chain();
    Op* op = chain_;
    chain_ = op->next();
    op->set_header(0, static_cast<int16_t>(priority), 0);
    return op;
  }

  OpPool pool_;
  Op* chain_ = nullptr;
  ReadyQueue queue_;
};

TEST_F(Queue, EqualsAModelUnderRandomUse) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    std::vector<Op*> model;  // in the order in which operations must be popped
    Op* released = nullptr;  // the last one of priority 0 that push_released() has added since a pop
    const int priorities = 1 + round % 9;
    for (int step = 0; step < 2000; ++step) {
      const bool grow = random() % 100 < (step < 1000 ? 60u : 40u);
      if (grow || model.empty()) {
        Op* op = new_op(static_cast<int>(random() % static_cast<unsigned>(priorities)) - priorities / 2);
        const unsigned way = random() % 4;  // 0: to the front; 1: released
        const bool front = way == 0 || (way == 1 && op->priority == 0);
        auto place = std::find_if(model.begin(), model.end(), [&](Op* other) {
          return front ? other->priority <= op->priority : other->priority < op->priority;
        });
        if (way == 1 && op->priority == 0) {
          if (released != nullptr) place = std::find(model.begin(), model.end(), released) + 1;
          released = op;
        }
        model.insert(place, op);
        way == 0 ? queue_.push_front(op) : way == 1 ? queue_.push_released(op) : queue_.push(op);
        continue;
      }
      released = nullptr;
      if (const unsigned kind = random() % 8; kind == 0) {
        Op* op = queue_.pop_nth(random() % model.size());
        const auto place = std::find(model.begin(), model.end(), op);
        ASSERT_NE(model.end(), place);
        model.erase(place);
      } else if (kind == 1) {
        const size_t wanted = random() % std::min<size_t>(model.size(), 8);
        const auto among = [&](Op* op) {  // of several candidates, the first in the order must be taken
          return std::find(model.begin() + static_cast<std::ptrdiff_t>(wanted), model.end(), op) !=
                 model.end();
        };
        ASSERT_EQ(model[wanted], queue_.pop_if(SIZE_MAX, among));
        model.erase(model.begin() + static_cast<std::ptrdiff_t>(wanted));
      } else {
        ASSERT_EQ(model.front(), queue_.pop());
        model.erase(model.begin());
      }
      ASSERT_EQ(model.size(), queue_.size());
      ASSERT_EQ(model.empty(), queue_.empty());
      ASSERT_EQ(!model.empty() && model.front()->priority > 0, queue_.urgent());
    }
    std::vector<Op*> all;
    queue_.for_each([&](Op* op) { all.push_back(op); });
    std::sort(all.begin(), all.end());
    std::vector<Op*> expected = model;
    std::sort(expected.begin(), expected.end());
    ASSERT_EQ(expected, all);
    for (Op* op : model) ASSERT_EQ(op, queue_.pop());
    ASSERT_TRUE(queue_.empty());
  }
}

TEST_F(Queue, TheLimitOfASearchCountsTheBest) {
  for (int i = 0; i < 10; ++i) queue_.push(new_op(i + 1));
  int looks = 0;
  EXPECT_EQ(nullptr, queue_.pop_if(4, [&](Op* op) {
    EXPECT_EQ(10 - looks, op->priority);
    ++looks;
    return false;
  }));
  EXPECT_EQ(4, looks);
  EXPECT_EQ(10u, queue_.size());
}

TEST_F(Queue, TheClosureAndTheVariablesStayAsTheyAre) {
  Op* op = new_op(3);
  std::fill(op->closure_bytes, op->closure_bytes + kClosureBytes, static_cast<unsigned char>(0xa5));
  VarPool vars;
  VarBlock* var = vars.take(nullptr);
  for (size_t i = 0; i < kInlineLinks; ++i) op->link(i).set(var, Access::read);
  for (int i = 0; i < 100; ++i) queue_.push(new_op(i % 7 - 3));
  queue_.push(op);
  while (queue_.pop() != op) {
  }
  for (const unsigned char byte : op->closure_bytes) EXPECT_EQ(0xa5, byte);
  for (size_t i = 0; i < kInlineLinks; ++i) EXPECT_EQ(var, op->link(i).var());
}

}  // namespace
}  // namespace mx::detail
