// The production SubmitRing under the explorer: producers, consumers, and the properties that must hold.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/detail/lock.h"
#include "engine/detail/submit_ring.h"
#include "tests/engine/model/checked_atomic.h"
#include "tests/engine/model/explorer.h"

namespace mx::test::model {

struct RingShape {
  size_t capacity = 2;
  std::vector<int> pushes = {1, 1};  // number of pushes of each producer
  bool consumer = true;              // a thread that pops items
  bool help = false;  // a producer that finds the ring full drains it itself, as submit_slowly() does
  bool drain_to_tail = false;  // another thread pushes once and then drains to the tail, as wait() does
  size_t pop_limit = 2;
  bool ask_tail = false;  // producers ask for the tail after each push
};

template <template <class> class Atomic = CheckedAtomic>
class RingModel : public Model {
 public:
  explicit RingModel(RingShape shape) : shape_(std::move(shape)) {
    if (shape_.drain_to_tail) shape_.pushes.push_back(1);
    for (const int n : shape_.pushes) total_ += static_cast<size_t>(n);
  }

  int threads() const override { return static_cast<int>(shape_.pushes.size()) + shape_.consumer; }

  void reset() override {
    ring_.emplace(shape_.capacity);
    lock_.emplace();
    for (Item& item : items_) item = {};
    popped_.clear();
    pushed_ = 0;
  }

  void run(int thread) override {
    if (thread == static_cast<int>(shape_.pushes.size())) return consume();
    size_t first = 0;
    for (int i = 0; i < thread; ++i) first += static_cast<size_t>(shape_.pushes[static_cast<size_t>(i)]);
    uint64_t hint = 0;
    for (int i = 0; i < shape_.pushes[static_cast<size_t>(thread)]; ++i)
      push(first + static_cast<size_t>(i), hint);
    if (shape_.drain_to_tail && thread == static_cast<int>(shape_.pushes.size()) - 1) drain_to_tail(first);
  }

  uint64_t digest() const override {
    uint64_t hash = pushed_;
    for (size_t i = 0; i < total_; ++i) hash = mix(mix(hash, items_[i].ticket), items_[i].before);
    for (const Item* item : popped_) hash = mix(hash, static_cast<uint64_t>(item - items_));
    return hash;
  }

  void check_end() override {
    while (Item* item = pop_one()) popped_.push_back(item);
    require(popped_.size() == total_, "an item was lost, or came twice");
    for (size_t place = 0; place < total_; ++place) {
      const Item& item = *popped_[place];
      require(item.ticket == place, "an item did not come in the place that its producer was told");
      for (size_t other = 0; other < total_; ++other) {
        if (item.before >> other & 1) require(items_[other].ticket < place, "a push overtook an earlier one");
      }
    }
    require(ring_->head() == total_ && ring_->tail() == total_ && !ring_->maybe_nonempty(),
            "the empty ring does not look empty");
  }

 private:
  struct alignas(8) Item {
    uint64_t ticket = UINT64_MAX;
    uint64_t before = 0;  // the items whose push had ended before the push of this item began
  };
  using Ring = detail::SubmitRing<Item, Atomic>;

  void push(size_t index, uint64_t& hint) {
    checkpoint(index << 8 | hint);
    Item& item = items_[index];
    item.before = pushed_;
    for (;;) {
      item.ticket = ring_->try_push(&item, hint);
      if (item.ticket != Ring::kFull) break;
      if (shape_.help) {
        take_some();
      } else {
        wait_until([this] { return ring_->tail() - ring_->head() < ring_->capacity(); }, "wait for room");
      }
      checkpoint((100 + index) << 8 | hint);
    }
    pushed_ |= uint64_t{1} << index;
    checkpoint((200 + index) << 8 | hint);
    if (!shape_.ask_tail) return;
    const uint64_t earlier = pushed_;
    observe(earlier);
    check_tail(ring_->tail(), earlier);
  }

  void check_tail(uint64_t tail, uint64_t earlier) {
    for (size_t i = 0; i < total_; ++i) {
      if (earlier >> i & 1) require(items_[i].ticket < tail, "tail() has not seen an earlier push");
    }
    require(peek([&] { return ring_->tail(); }) >= tail, "tail() counts a place that nobody has filled");
  }

  void take_some() {
    const bool alone = !shape_.help && !shape_.drain_to_tail;  // one consumer needs no lock
    if (!alone) lock_->lock();
    Item* out[8];
    const size_t n = ring_->pop(out, shape_.pop_limit);
    popped_.insert(popped_.end(), out, out + n);
    if (!alone) lock_->unlock();
  }

  void consume() {
    for (;;) {
      checkpoint(300);
      wait_until([this] { return popped_.size() == total_ || ring_->maybe_nonempty(); }, "wait for an item");
      if (popped_.size() == total_) return;
      take_some();
    }
  }

  // Every slot before the tail has been filled, so the ring never looks empty before the tail.
  void drain_to_tail(size_t own) {
    checkpoint(400);
    lock_->lock();
    const uint64_t tail = ring_->tail();
    require(items_[own].ticket < tail, "tail() has not seen the caller's own push");
    while (static_cast<int64_t>(tail - ring_->head()) > 0) {
      Item* out[8];
      const size_t n = ring_->pop(out, shape_.pop_limit);
      require(n > 0, "a place before the tail is empty");
      popped_.insert(popped_.end(), out, out + n);
    }
    lock_->unlock();
  }

  Item* pop_one() {
    Item* item = nullptr;
    return ring_->pop(&item, 1) == 1 ? item : nullptr;
  }

  RingShape shape_;
  size_t total_ = 0;
  std::optional<Ring> ring_;
  std::optional<detail::BasicEngineLock<Atomic, CheckedBackoff>> lock_;
  Item items_[16];
  std::vector<Item*> popped_;
  uint64_t pushed_ = 0;
};

}  // namespace mx::test::model
