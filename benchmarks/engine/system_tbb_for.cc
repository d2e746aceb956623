// tbb_for: a parallel loop over independent operations. It has no operation objects, only numbers, so it is
// the bound for a replayed segment of independent operations.
#include <tbb/blocked_range.h>
#include <tbb/global_control.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <atomic>

#include "benchmarks/engine/body.h"
#include "benchmarks/engine/system.h"

namespace mx::bench {
namespace {

class TbbFor : public System {
 public:
  explicit TbbFor(int threads)
      : control_(tbb::global_control::max_allowed_parallelism, static_cast<size_t>(threads)),
        arena_(threads) {}

  void prepare(const Pattern&) override {}

  void inside(const std::function<void()>& program) override { arena_.execute(program); }

  void submit(uint32_t begin, uint32_t end) override {
    tbb::parallel_for(tbb::blocked_range<uint32_t>(begin, end), [](const tbb::blocked_range<uint32_t>& part) {
      for (uint32_t i = part.begin(); i != part.end(); ++i) {
        run_body(i);
        std::atomic_signal_fence(
            std::memory_order_seq_cst);  // otherwise the compiler removes a loop of empty bodies
      }
    });
  }

  void wait_all() override {}  // submit() returns when all operations have run

 private:
  tbb::global_control control_;
  tbb::task_arena arena_;
};

}  // namespace

std::unique_ptr<System> make_tbb_for(int threads) { return std::make_unique<TbbFor>(threads); }

}  // namespace mx::bench
