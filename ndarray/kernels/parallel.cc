#include "ndarray/kernels/parallel.h"

#include <tbb/blocked_range.h>
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/partitioner.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <utility>

#include "engine/base/annotations.h"
#include "engine/base/clock.h"
#include "engine/base/cpus.h"
#include "engine/base/shared_loop.h"

namespace mx {

namespace {
thread_local constinit bool serial_loops = false;

/// Returns usable_cpus(), which reads files, of the first call.
int cpus() {
  static const int result = usable_cpus();
  return result;
}
}  // namespace

SerialLoops::SerialLoops() : before_(std::exchange(serial_loops, true)) {}
SerialLoops::~SerialLoops() { serial_loops = before_; }

int parallel_width() {
  if (serial_loops || cpus() == 1) return 1;
  const size_t allowed = tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism);
  const int width =
      static_cast<int>(std::min(allowed, static_cast<size_t>(tbb::this_task_arena::max_concurrency())));
  // The arena of the engine's workers has room for more threads than there are processors.
  return std::min(width, cpus());
}

namespace detail {

namespace {

// oneTBB orders the code before the loop before each participant, and each participant before the code after
// the loop. ThreadSanitizer does not see that. The owner of the loop declares it by a Handover, and each
// participant by a Participant with the same `edge`.
class Handover {
 public:
  explicit Handover(const void* edge) : edge_(edge) { MX_TSAN_RELEASE(edge_); }
  ~Handover() { MX_TSAN_ACQUIRE(edge_); }
  Handover(const Handover&) = delete;
  Handover& operator=(const Handover&) = delete;

 private:
  const void* edge_;
};
class Participant {
 public:
  explicit Participant(const void* edge) : edge_(edge) { MX_TSAN_ACQUIRE(edge_); }
  ~Participant() { MX_TSAN_RELEASE(edge_); }
  Participant(const Participant&) = delete;
  Participant& operator=(const Participant&) = delete;

 private:
  const void* edge_;
};

// If no searching thread has joined a loop after this time, none is likely to join soon.
constexpr double kPatienceUs = 10;
// A thread that has just pushed this operation and begins to wait for it polls for loops within this time.
// The loop waits for it, because asking oneTBB for threads takes longer and would add one thread too many.
constexpr double kArrivalUs = 2;

uint64_t ticks_in(double us) { return static_cast<uint64_t>(us * ticks_per_us()); }

}  // namespace

void parallel_pieces(int64_t n, int64_t grain, LoopBody call, const void* body) {
  grain = std::max(grain, n / INT32_MAX + 1);  // SharedLoop counts pieces in 32 bits
  const int64_t pieces = (n + grain - 1) / grain;
  const int threads = static_cast<int>(std::min<int64_t>(pieces, parallel_width()));
  if (threads == 1) {
    for (int64_t i = 0; i < pieces; ++i) call(body, i * grain, std::min((i + 1) * grain, n));
    return;
  }
  SharedLoop loop(n, grain, call, body, threads);
  if (!loop.attended(ticks_in(kArrivalUs)) || !loop.run(ticks_in(kPatienceUs))) {
    const void* edge = &pieces;
    const Handover handover(edge);
    tbb::this_task_arena::isolate([&] {
      tbb::parallel_for(
          tbb::blocked_range<int>(0, threads, 1),
          [&](const tbb::blocked_range<int>& range) {
            const Participant participant(edge);
            for (int i = range.begin(); i < range.end(); ++i) loop.join(static_cast<uint32_t>(i));
          },
          tbb::simple_partitioner());
    });
  }
  loop.finish();
}

}  // namespace detail
}  // namespace mx
