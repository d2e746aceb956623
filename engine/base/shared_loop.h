// SharedLoop: a loop inside an operation, offered to the threads that are looking for work at that moment.
//
// Calling a thread through oneTBB costs about as much as a loop of a few microseconds takes. A worker of the
// engine that has nothing to do spins before it goes back to oneTBB, and sees an offered loop within tens of
// nanoseconds.
//
//   SharedLoop loop(n, grain, call, body, threads);   // offered from here on
//   loop.run(SharedLoop::kForever);                   // the owner takes part
//   loop.finish();                                    // all pieces have ended; throws what one threw
//
// The pieces are [0, grain), [grain, 2 * grain), ... and do not depend on who runs them. Each participant has
// a run of neighbouring pieces of its own, the same in every loop of as many pieces, and takes from the
// others' when that is done: so what a thread has in its cache is what it gets again.
//
// A thread that takes part works for the owner's operation (current_task.h) while it is in a piece.
//
// Thread-safety: a loop belongs to the thread that made it; help() and offered() from any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>

#include "engine/base/current_task.h"

namespace mx {

class SharedLoop {
 public:
  /// Runs the elements [begin, end) of `body`.
  using Call = void (*)(const void* body, int64_t begin, int64_t end);
  static constexpr uint64_t kForever = UINT64_MAX;
  /// What is known of the pieces of a kind of loop, from the latest one; of a new kind, that they may be
  /// long.
  enum class Pieces : uint8_t { not_brief, brief };

  /// For `threads` participants at most, the owner among them. n and grain are positive.
  SharedLoop(int64_t n, int64_t grain, Call call, const void* body, int threads);
  SharedLoop(const SharedLoop&) = delete;
  SharedLoop& operator=(const SharedLoop&) = delete;
  ~SharedLoop() { wait_for_others(); }

  /// Takes pieces until none is left, and returns true; false when after `patience` ticks there still are
  /// some and fewer threads have come than were wanted.
  bool run(uint64_t patience);
  /// Takes pieces until none is left, on a thread that the owner has called, or on its own. The owner's seat
  /// is 0.
  void join(uint32_t seat);
  /// Waits for the pieces that others are in. The first exception out of a piece is rethrown.
  void finish();

  /// Can the owner begin without calling threads? Where pieces are short: is there a thread that would see
  /// this loop and may take part? Where they may be long: do as many look, or have as many come,
  /// as are wanted? For that this gives them `patience` ticks.
  bool attended(uint64_t patience) const;
  /// Is there a loop that may want help?
  static bool offered() { return offered_.load(std::memory_order_relaxed) > 0; }

  /// What its thread looks at: offers of all loops, or only of those whose pieces are known to be short,
  /// since the latest loop of that kind had such ones.
  class Look {
   public:
    enum At : int8_t { all, brief, nothing };
    Look() = default;
    explicit Look(At at) { set(at); }
    ~Look() { set(nothing); }
    Look(const Look&) = delete;
    Look& operator=(const Look&) = delete;
    void set(At at) {
      if (at == at_) return;
      if (at_ != nothing) looking_[at_].fetch_sub(1, std::memory_order_relaxed);
      if (at != nothing) looking_[at].fetch_add(1, std::memory_order_relaxed);
      at_ = at;
    }
    At at() const { return at_; }

   private:
    At at_ = nothing;
  };

  /// Takes part in what is offered until there is nothing left, or stop() between two pieces. Returns whether
  /// it ran any piece.
  template <class Stop>
  static bool help(Look::At at, const Stop& stop) {
    return help(
        at, [](const void* s) { return (*static_cast<const Stop*>(s))(); }, &stop);
  }

 private:
  static constexpr int kRuns = 16;
  static constexpr int kPlaces = 16;
  /// Pieces [begin, end) that nobody has taken: begin in the upper half.
  struct alignas(64) Run {
    uint64_t bounds;  // atomically
  };
  struct alignas(64) Place {
    std::atomic<SharedLoop*> loop{nullptr};
    std::atomic<uint32_t> inside{0};  // who looks at it
    std::atomic<bool> taken{false};
  };

  static bool help(Look::At at, bool (*stop)(const void*), const void* argument);
  bool take(uint32_t seat, uint32_t& piece);
  void call_piece(uint32_t piece);
  void withdraw();
  void wait_for_others();

  const int64_t n_, grain_;
  const Call call_;
  const void* const body_;
  const uint32_t seats_;        // participants
  const uint32_t runs_;         // of pieces, one for each of the first participants
  std::atomic<Pieces>& known_;  // of loops of this kind
  const bool brief_;
  const detail::CurrentTask task_ = detail::current_task;  // the owner's, for those who take part
  Place* place_ = nullptr;
  std::array<Run, kRuns> left_;
  std::atomic<uint32_t> joined_{1};
  std::mutex mutex_;
  std::exception_ptr thrown_;  // the first

  alignas(64) static inline std::atomic<int> looking_[2] = {0, 0};
  alignas(64) static inline std::atomic<int> offered_{0};
  static Place places_[kPlaces];
};

}  // namespace mx
