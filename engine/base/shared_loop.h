// SharedLoop: a loop inside an operation, offered to the threads that are polling for work at that moment.
//
// Calling a thread through oneTBB costs about as much as a loop of a few microseconds takes. An idle worker
// of the engine spins before it returns its thread to oneTBB, and sees an offered loop within tens of
// nanoseconds.
//
//   SharedLoop loop(n, grain, call, body, threads);   // offered from here on
//   loop.run(SharedLoop::kForever);                   // the owner takes part
//   loop.finish();                                    // all pieces have ended; throws what one threw
//
// The pieces are [0, grain), [grain, 2 * grain), ... whichever threads run them. Each participant has a run
// of neighbouring pieces, the same in every loop with as many pieces, so that it gets the data that its cache
// already holds. A participant whose run is empty takes pieces from the runs of others.
//
// A participant works for the owner's operation (current_task.h) while it is in a piece.
//
// Thread-safety: the thread that makes a loop is its owner, and only the owner calls its members, except that
// a thread called by the owner may call join(). Any thread may call help() and offered().
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
  /// The length of the pieces of a kind of loop, as measured in the latest loop of that kind. A kind that has
  /// not run yet counts as not brief.
  enum class Pieces : uint8_t { not_brief, brief };

  /// Offers the loop to at most `threads` participants, including the owner. n and grain are positive.
  SharedLoop(int64_t n, int64_t grain, Call call, const void* body, int threads);
  SharedLoop(const SharedLoop&) = delete;
  SharedLoop& operator=(const SharedLoop&) = delete;
  ~SharedLoop() { wait_for_others(); }

  /// Runs pieces on the owner's thread until none is left, and returns true. Returns false if after
  /// `patience` ticks pieces are left and fewer threads have joined than were wanted.
  bool run(uint64_t patience);
  /// Runs pieces until none is left, on a thread that the owner has called or on the owner's own. The owner's
  /// seat is 0.
  void join(uint32_t seat);
  /// Waits for the pieces that other threads are in. If pieces have thrown, rethrows what the
  /// first of them, in order, threw. The pieces before it have run; some behind it have not.
  void finish();

  /// Returns true if the owner can begin without calling threads. If the pieces are short, that is so if some
  /// thread polls that may take part in this loop. If they may be long, as many threads as are wanted must
  /// poll or have joined; the owner waits up to `patience` ticks for that.
  bool attended(uint64_t patience) const;
  /// Returns true if there may be a loop that wants help.
  static bool offered() { return offered_.load(std::memory_order_relaxed) > 0; }

  /// The offers that a thread polls for while this object lives: `all` loops, or only `brief` ones, whose
  /// pieces were short in the latest loop of that kind.
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

  /// Takes part in the offered loops until no piece is left, or until stop() returns true between two pieces.
  /// Returns whether it ran any piece.
  template <class Stop>
  static bool help(Look::At at, const Stop& stop) {
    return help(
        at, [](const void* s) { return (*static_cast<const Stop*>(s))(); }, &stop);
  }

 private:
  static constexpr int kRuns = 16;
  static constexpr int kPlaces = 16;
  /// The pieces [begin, end) of a run that are not yet taken; `begin` is the upper half of `bounds`.
  struct alignas(64) Run {
    uint64_t bounds;  // accessed atomically
  };
  struct alignas(64) Place {
    std::atomic<SharedLoop*> loop{nullptr};
    std::atomic<uint32_t> inside{0};  // threads that may be using `loop`
    std::atomic<bool> taken{false};
  };

  static bool help(Look::At at, bool (*stop)(const void*), const void* argument);
  bool take(uint32_t seat, uint32_t& piece);
  void call_piece(uint32_t piece);
  /// Takes piece `piece` and those behind it out of the loop.
  void drop_from(uint32_t piece);
  void withdraw();
  void wait_for_others();

  const int64_t n_, grain_;
  const Call call_;
  const void* const body_;
  const uint32_t seats_;        // participants that are wanted
  const uint32_t runs_;         // of pieces, one for each of the first participants
  std::atomic<Pieces>& known_;  // of loops of this kind
  const bool brief_;
  const detail::CurrentTask task_ = detail::current_task;  // the owner's, also for the other participants
  Place* place_ = nullptr;
  std::array<Run, kRuns> left_;
  std::atomic<uint32_t> joined_{1};
  std::mutex mutex_;
  std::exception_ptr thrown_;  // the exception of the first piece, in order, that has thrown
  uint32_t thrown_by_ = 0;

  alignas(64) static inline std::atomic<int> looking_[2] = {0, 0};
  alignas(64) static inline std::atomic<int> offered_{0};
  static Place places_[kPlaces];
};

}  // namespace mx
