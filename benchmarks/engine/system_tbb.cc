// tbb: edges given in advance, and one atomic counter per operation. The first successor that becomes ready
// runs in the same task. It infers nothing, so it is the lower bound for dependency-driven execution on
// oneTBB.
#include <tbb/global_control.h>
#include <tbb/task_arena.h>
#include <tbb/task_group.h>

#include <atomic>

#include "benchmarks/engine/body.h"
#include "benchmarks/engine/system.h"

namespace mx::bench {
namespace {

class Tbb : public System {
 public:
  explicit Tbb(int threads)
      : control_(tbb::global_control::max_allowed_parallelism, static_cast<size_t>(threads)),
        arena_(threads) {}

  ~Tbb() noexcept override {}  // the destructor of tbb::task_group may throw

  void prepare(const Pattern& pattern) override {
    graph_ = make_graph(pattern);
    counters_ = std::make_unique<std::atomic<int32_t>[]>(pattern.size());
  }

  void inside(const std::function<void()>& program) override { arena_.execute(program); }

  void submit(uint32_t, uint32_t) override {
    const auto n = static_cast<uint32_t>(graph_.predecessors.size());
    for (uint32_t i = 0; i < n; ++i) counters_[i].store(graph_.predecessors[i], std::memory_order_relaxed);
    for (uint32_t i = 0; i < n; ++i) {
      if (graph_.predecessors[i] == 0) group_.run([this, i] { execute(i); });
    }
  }

  void wait_all() override { group_.wait(); }

 private:
  void execute(uint32_t i) {
    constexpr uint32_t kNone = UINT32_MAX;
    while (i != kNone) {
      run_body(i);
      uint32_t next = kNone;
      for (uint32_t k = graph_.first_successor[i]; k < graph_.first_successor[i + 1]; ++k) {
        const uint32_t successor = graph_.successors[k];
        if (counters_[successor].fetch_sub(1, std::memory_order_acq_rel) != 1) continue;
        if (next == kNone) {
          next = successor;
        } else {
          group_.run([this, successor] { execute(successor); });
        }
      }
      i = next;
    }
  }

  tbb::global_control control_;
  tbb::task_arena arena_;
  tbb::task_group group_;
  Graph graph_;
  std::unique_ptr<std::atomic<int32_t>[]> counters_;
};

}  // namespace

std::unique_ptr<System> make_tbb(int threads) { return std::make_unique<Tbb>(threads); }

}  // namespace mx::bench
