#include "engine/base/shared_loop.h"

#include <algorithm>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/cpus.h"

namespace mx {

namespace {

// Pieces that end within this time (microseconds) are short.
constexpr double kBriefUs = 50;

// A kind of loop is a hash of its function and the size of a piece. If two kinds collide, their lengths are
// sometimes guessed wrongly, which costs a little time.
constexpr size_t kKinds = 1024;
std::atomic<SharedLoop::Pieces> kinds[kKinds];

std::atomic<SharedLoop::Pieces>& kind_of(SharedLoop::Call call, int64_t grain) {
  const uint64_t key = reinterpret_cast<uint64_t>(call) ^ (static_cast<uint64_t>(grain) << 20);
  return kinds[key * 0x9E3779B97F4A7C15 >> 54];
}

constexpr uint64_t bounds(uint64_t begin, uint64_t end) { return begin << 32 | end; }

}  // namespace

thread_local constinit detail::CurrentTask detail::current_task;
constinit SharedLoop::Place SharedLoop::places_[kPlaces];

SharedLoop::SharedLoop(int64_t n, int64_t grain, Call call, const void* body, int threads)
    : n_(n),
      grain_(std::max(grain, n / INT32_MAX + 1)),  // because pieces are counted in 32 bits
      call_(call),
      body_(body),
      seats_(static_cast<uint32_t>(threads)),
      runs_(static_cast<uint32_t>(std::min(threads, kRuns))),
      known_(kind_of(call, grain)),
      brief_(known_.load(std::memory_order_relaxed) == Pieces::brief) {
  const auto pieces = static_cast<uint64_t>((n_ + grain_ - 1) / grain_);
  for (uint32_t i = 0; i < runs_; ++i) left_[i].bounds = bounds(pieces * i / runs_, pieces * (i + 1) / runs_);
  if (seats_ == 1) return;
  for (Place& place : places_) {
    if (place.taken.load(std::memory_order_relaxed) || place.taken.exchange(true, std::memory_order_acquire))
      continue;
    place_ = &place;
    place.loop.store(this, std::memory_order_seq_cst);
    offered_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
}

void SharedLoop::wait_for_others() {
  if (place_ == nullptr) return;
  withdraw();
  // A helper increments `inside` before it reads the loop pointer. So either the owner sees the increment, or
  // the helper sees the null pointer.
  spin_until([&] { return place_->inside.load(std::memory_order_seq_cst) == 0; });
  std::exchange(place_, nullptr)->taken.store(false, std::memory_order_release);
}

// Any participant may call this. wait_for_others() keeps the loop alive as long as a helper is inside.
void SharedLoop::withdraw() {
  SharedLoop* self = this;
  if (place_->loop.compare_exchange_strong(self, nullptr, std::memory_order_seq_cst))
    offered_.fetch_sub(1, std::memory_order_relaxed);
}

// Takes a piece from the front of the participant's own run, or else from the back of another run.
bool SharedLoop::take(uint32_t seat, uint32_t& piece) {
  for (uint32_t i = 0; i < runs_; ++i) {
    const std::atomic_ref<uint64_t> run(left_[(seat + i) % runs_].bounds);
    uint64_t seen = run.load(std::memory_order_relaxed);
    for (;;) {
      const uint64_t begin = seen >> 32, end = seen & UINT32_MAX;
      if (begin >= end) break;
      piece = static_cast<uint32_t>(i == 0 ? begin : end - 1);
      const uint64_t rest = i == 0 ? bounds(begin + 1, end) : bounds(begin, end - 1);
      if (run.compare_exchange_weak(seen, rest, std::memory_order_relaxed)) return true;
    }
  }
  if (place_ != nullptr) withdraw();
  return false;
}

void SharedLoop::call_piece(uint32_t piece) {
  const int64_t begin = piece * grain_;
  try {
    call_(body_, begin, begin + std::min(grain_, n_ - begin));
  } catch (...) {
    drop_from(piece);
    const std::lock_guard lock(mutex_);
    if (thrown_ != nullptr && thrown_by_ < piece) return;
    thrown_ = std::current_exception();
    thrown_by_ = piece;
  }
}

// The pieces before the one that has thrown still run, so that the error does not depend on the threads.
void SharedLoop::drop_from(uint32_t piece) {
  for (uint32_t i = 0; i < runs_; ++i) {
    const std::atomic_ref<uint64_t> run(left_[i].bounds);
    uint64_t seen = run.load(std::memory_order_relaxed), kept = 0;
    do {
      const uint64_t end = std::min<uint64_t>(seen & UINT32_MAX, piece);
      kept = bounds(std::min(seen >> 32, end), end);
    } while (!run.compare_exchange_weak(seen, kept, std::memory_order_relaxed));
  }
}

bool SharedLoop::attended(uint64_t patience) const {
  const auto looking = [](Look::At at) { return looking_[at].load(std::memory_order_relaxed); };
  if (brief_) return looking(Look::all) + looking(Look::brief) > 0;
  const uint64_t begin = ticks();
  // A helper that is already polling joins as soon as it is scheduled. Calling another thread now would only
  // take a processor away from it.
  while (joined_.load(std::memory_order_relaxed) < seats_ &&
         looking(Look::all) + 1 < static_cast<int>(seats_)) {
    if (ticks() - begin > patience) return false;
    cpu_relax();
  }
  return true;
}

bool SharedLoop::run(uint64_t patience) {
  const uint64_t begin = ticks();
  uint32_t piece = 0;
  while (take(0, piece)) {
    call_piece(piece);
    const uint64_t now = ticks();
    if (piece == 0) {
      const bool brief = static_cast<double>(now - begin) < kBriefUs * ticks_per_us();
      if (brief != brief_) known_.store(brief ? Pieces::brief : Pieces::not_brief, std::memory_order_relaxed);
    }
    if (now - begin > patience && joined_.load(std::memory_order_relaxed) < seats_) return false;
  }
  return true;
}

void SharedLoop::join(uint32_t seat) {
  const detail::WorkingFor working_for(task_);
  uint32_t piece = 0;
  while (take(seat, piece)) call_piece(piece);
}

void SharedLoop::finish() {
  wait_for_others();
  if (thrown_ != nullptr) std::rethrow_exception(thrown_);
}

bool SharedLoop::help(Look::At at, bool (*stop)(const void*), const void* argument) {
  bool any = false;
  for (Place& place : places_) {
    if (place.loop.load(std::memory_order_relaxed) == nullptr) continue;
    place.inside.fetch_add(1, std::memory_order_seq_cst);
    SharedLoop* const loop = place.loop.load(std::memory_order_seq_cst);
    if (loop != nullptr && (at == Look::all || loop->brief_) &&
        loop->joined_.load(std::memory_order_relaxed) < loop->seats_) {
      const uint32_t seat = loop->joined_.fetch_add(1, std::memory_order_relaxed);
      {
        const detail::WorkingFor working_for(loop->task_);
        uint32_t piece = 0;
        while (seat < loop->seats_ && loop->take(seat, piece)) {
          any = true;
          loop->call_piece(piece);
          if (stop(argument)) break;
        }
      }
      loop->joined_.fetch_sub(1, std::memory_order_relaxed);  // frees the seat for this or another thread
    }
    place.inside.fetch_sub(1, std::memory_order_release);
    if (stop(argument)) break;
  }
  return any;
}

}  // namespace mx
