#include "tests/engine/model/explorer.h"

#include <algorithm>
#include <memory>
#include <sstream>
#include <utility>
#include <vector>

#include "tests/engine/model/checked_atomic.h"
#include "tests/engine/model/fiber.h"

namespace mx::test::model {

namespace {

constexpr uint32_t kMaxSteps = 20'000;  // steps of one execution; more means an endless loop
constexpr int kNobody = -1;

// Thrown at a scheduling point to end a thread after the execution has failed.
struct Stop {};

// A set of hashes that is cheap to clear while it is small.
class HashSet {
 public:
  void clear() {
    slots_.assign(kSmall, 0);
    size_ = 0;
  }
  /// Inserts the hash; returns false if it was already present.
  bool insert(uint64_t hash) {
    if (hash == 0) hash = 1;
    if (size_ * 2 >= slots_.size()) grow();
    uint64_t& slot = find(hash);
    if (slot == hash) return false;
    slot = hash;
    ++size_;
    return true;
  }

 private:
  static constexpr size_t kSmall = 1024;
  uint64_t& find(uint64_t hash) {
    size_t i = hash & (slots_.size() - 1);
    while (slots_[i] != 0 && slots_[i] != hash) i = (i + 1) & (slots_.size() - 1);
    return slots_[i];
  }
  void grow() {
    std::vector<uint64_t> old(slots_.size() * 2, 0);
    old.swap(slots_);
    for (const uint64_t hash : old) {
      if (hash != 0) find(hash) = hash;
    }
  }

  std::vector<uint64_t> slots_ = std::vector<uint64_t>(kSmall, 0);
  size_t size_ = 0;
};

struct Thread {
  std::unique_ptr<Fiber> fiber;
  bool finished = true;
  uint64_t observed = 0;
  // The cell whose change the next step waits for; null if none.
  const Cell* changing = nullptr;
  uint32_t changes = 0;
  bool (*condition)(void*) = nullptr;
  void* argument = nullptr;
  // The cell that was accessed last.
  const Cell* accessed = nullptr;
  uint32_t changes_seen = 0;

  bool enabled() const {
    if (finished) return false;
    if (changing != nullptr) return changing->changes != changes;
    return condition == nullptr || condition(argument);
  }
};

// A decision: the threads that could continue, and the one that was chosen.
struct Choice {
  uint8_t options[kMaxThreads];
  uint8_t count = 0;
  uint8_t chosen = 0;
};

class Explorer {
 public:
  Explorer() {
    for (int i = 0; i < kMaxThreads; ++i) {
      bodies_[i] = {this, i};
      threads_[i].fiber = std::make_unique<Fiber>(&Explorer::loop, &bodies_[i]);
    }
  }

  static Explorer& instance() {
    static auto* explorer = new Explorer;  // never destroyed, so its stacks outlive every test
    return *explorer;
  }

  Exploration explore(Model& model, Limits limits) {
    model_ = &model;
    limit_ = limits.preemptions;
    remember_ = limits.remember_states;
    result_ = {};
    path_.clear();
    visited_.clear();
    for (;;) {
      execute();
      ++result_.executions;
      if (!result_.violation.empty()) {
        tracing_ = true;  // run it again, and record every step
        execute();
        tracing_ = false;
        result_.violation.append("\n").append(trace_.str());
        trace_.str("");
        return result_;
      }
      while (!path_.empty() && path_.back().chosen + 1 == path_.back().count) path_.pop_back();
      if (path_.empty()) break;
      ++path_.back().chosen;
      if (result_.executions >= limits.executions) return result_;
    }
    result_.complete = true;
    return result_;
  }

  // ---- called from threads ----

  bool in_thread() const { return current_ != kNobody && !peeking_; }
  bool peek(bool on) { return std::exchange(peeking_, on); }
  Thread& self() { return threads_[current_]; }

  void step(const char* what, const Cell* cell) {
    const int me = current_;
    if (stopping_) throw Stop();
    hand_over();
    if (stopping_) throw Stop();
    Thread& thread = threads_[me];
    thread.changing = nullptr;
    thread.condition = nullptr;
    thread.observed = mix(thread.observed, 1);
    if (++steps_ > kMaxSteps) fail("it does not end");
    if (tracing_) {
      trace_ << "  thread " << me << ": " << what;
      if (cell != nullptr) trace_ << " #" << cell->index << " (" << cell->bits << ")";
      trace_ << "\n";
    }
  }

  [[noreturn]] void fail(const std::string& what) {
    if (result_.violation.empty()) result_.violation = what;
    stopping_ = true;
    throw Stop();
  }

  uint32_t cells() const { return static_cast<uint32_t>(cells_.size()); }
  void add(Cell* cell) { cells_.push_back(cell); }

 private:
  struct Body {
    Explorer* explorer;
    int thread;
  };

  static void loop(void* argument) {
    const Body body = *static_cast<Body*>(argument);
    for (;;) {
      body.explorer->run(body.thread);
      body.explorer->leave(body.thread);
    }
  }

  void run(int thread) {
    try {
      model_->run(thread);
    } catch (const Stop&) {
    }
    threads_[thread].finished = true;
  }

  // Ends the thread. When the fiber is resumed, a new execution has begun.
  void leave(int thread) {
    const int next = stopping_ || starting_ ? kNobody : choose();
    current_ = next;
    Fiber::switch_to(*threads_[thread].fiber, next == kNobody ? main_ : *threads_[next].fiber);
  }

  void hand_over() {
    const int me = current_;
    const int next = starting_ ? kNobody : choose();
    if (next == me) return;
    current_ = next;
    Fiber::switch_to(*threads_[me].fiber, next == kNobody ? main_ : *threads_[next].fiber);
    current_ = me;
  }

  void execute() {
    cells_.clear();
    model_->reset();
    count_ = model_->threads();
    for (int i = 0; i < count_; ++i) {
      Thread& thread = threads_[i];
      thread.finished = false;
      thread.observed = 0;
      thread.changing = thread.accessed = nullptr;
      thread.condition = nullptr;
    }
    depth_ = 0;
    steps_ = 0;
    preemptions_ = 0;
    known_ = false;
    stopping_ = false;
    current_ = kNobody;
    // Run each thread up to its first step; the code before it touches nothing shared.
    starting_ = true;
    for (int i = 0; i < count_; ++i) enter(i);
    starting_ = false;
    if (!stopping_) enter(choose());
    // After a failure, stop the other threads at their current step (if they have started at all).
    for (int i = 0; i < count_; ++i) {
      while (stopping_ && !threads_[i].finished) enter(i);
    }
    result_.longest = std::max(result_.longest, steps_);
    current_ = kNobody;
    if (!stopping_) {
      try {
        model_->check_end();
      } catch (const Stop&) {
      }
    }
  }

  void enter(int thread) {
    if (thread == kNobody) return;
    current_ = thread;
    Fiber::switch_to(main_, *threads_[thread].fiber);
    current_ = kNobody;
  }

  // Returns the thread that takes the next step; kNobody if the execution is over.
  int choose() {
    const bool peeking = peek(true);
    const int next = choose_among_enabled();
    peek(peeking);
    return next;
  }

  int choose_among_enabled() {
    Choice choice;
    if (current_ != kNobody && threads_[current_].enabled()) {
      choice.options[choice.count++] = static_cast<uint8_t>(current_);
    }
    bool all_finished = true;
    const bool may_stop = choice.count == 0 || limit_ < 0 || preemptions_ < limit_;
    const bool goes_on = choice.count != 0;
    for (int i = 0; i < count_; ++i) {
      all_finished &= threads_[i].finished;
      if (may_stop && i != current_ && threads_[i].enabled())
        choice.options[choice.count++] = static_cast<uint8_t>(i);
    }
    if (choice.count == 0) {
      if (!all_finished) {
        if (result_.violation.empty()) result_.violation.append("deadlock: ").append(waiting());
        stopping_ = true;
      }
      return kNobody;
    }
    if (choice.count == 1) return choice.options[0];
    if (depth_ < path_.size()) {
      const Choice& made = path_[depth_++];
      preemptions_ += goes_on && made.chosen > 0;
      return made.options[made.chosen];
    }
    // This state has been explored before, so the execution only needs to finish. The threads take turns
    // every 64 steps, so that a polling thread does not starve the others.
    if (known_) return choice.options[steps_ % 64 == 0 ? (steps_ / 64) % choice.count : 0];
    if (tracing_ || (remember_ && !visited_.insert(state()))) {
      known_ = true;
      return choice.options[0];
    }
    ++result_.states;
    path_.push_back(choice);
    ++depth_;
    return choice.options[0];
  }

  uint64_t state() const {
    uint64_t hash = model_->digest();
    for (const Cell* cell : cells_) hash = mix(hash, cell->bits);
    uint64_t sum = 0;  // a sum, because threads of one group are interchangeable
    for (int i = 0; i < count_; ++i) {
      const Thread& thread = threads_[i];
      const uint64_t waits = thread.changing == nullptr                   ? 0
                             : thread.changing->changes == thread.changes ? 1
                                                                          : 2;
      sum += mix(mix(thread.observed, waits * 2 + thread.finished),
                 77 + static_cast<uint64_t>(model_->group(i)));
    }
    if (limit_ >= 0) hash = mix(hash, static_cast<uint64_t>(preemptions_ * kMaxThreads + current_ + 1));
    return mix(hash, sum);
  }

  std::string waiting() const {
    std::string text;
    for (int i = 0; i < count_; ++i) {
      if (!threads_[i].finished) text.append("thread ").append(std::to_string(i)).append(" waits; ");
    }
    return text;
  }

  Model* model_ = nullptr;
  Exploration result_;
  Fiber main_;
  Thread threads_[kMaxThreads];
  Body bodies_[kMaxThreads];
  int limit_ = -1;
  bool remember_ = true;
  int preemptions_ = 0;
  int count_ = 0;
  int current_ = kNobody;
  std::vector<Cell*> cells_;
  std::vector<Choice> path_;
  size_t depth_ = 0;
  uint32_t steps_ = 0;
  bool known_ = false;  // the execution has reached a state that was explored before
  bool starting_ = false;
  bool stopping_ = false;
  bool peeking_ = false;
  bool tracing_ = false;
  std::ostringstream trace_;
  HashSet visited_;
};

}  // namespace

Exploration explore(Model& model, Limits limits) { return Explorer::instance().explore(model, limits); }

void fail(const std::string& what) { Explorer::instance().fail(what); }

void point(const char* what) { Explorer::instance().step(what, nullptr); }

void wait_until(bool (*condition)(void*), void* argument, const char* what) {
  Thread& self = Explorer::instance().self();
  self.condition = condition;
  self.argument = argument;
  Explorer::instance().step(what, nullptr);
}

void observe(uint64_t value) {
  Thread& self = Explorer::instance().self();
  self.observed = mix(self.observed, value);
}

void checkpoint(uint64_t value) { Explorer::instance().self().observed = mix(0, value); }

bool set_peeking(bool on) { return Explorer::instance().peek(on); }

void wait_for_change() {
  Thread& self = Explorer::instance().self();
  self.changing = self.accessed;
  self.changes = self.changes_seen;
}

Cell::Cell(uint64_t initial) : bits(initial), index(Explorer::instance().cells()) {
  Explorer::instance().add(this);
}

void Cell::before(const char* what) const {
  Explorer& explorer = Explorer::instance();
  if (explorer.in_thread()) explorer.step(what, this);
}

void Cell::after(uint64_t seen) const {
  Explorer& explorer = Explorer::instance();
  if (!explorer.in_thread()) return;
  Thread& self = explorer.self();
  self.observed = mix(self.observed, seen);
  self.accessed = this;
  self.changes_seen = changes;
}

}  // namespace mx::test::model
