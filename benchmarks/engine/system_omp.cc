// omp: OpenMP tasks with depend clauses, submitted by one thread of the team. The team is created before the
// clock starts. The same source is used with GCC's libgomp and Clang's libomp.
#include <omp.h>

#include <cstdlib>

#include "benchmarks/engine/body.h"
#include "benchmarks/engine/system.h"

namespace mx::bench {
namespace {

class Omp : public System {
 public:
  explicit Omp(int threads) : threads_(threads) {}

  void prepare(const Pattern& pattern) override {
    pattern_ = &pattern;
    variables_.assign(pattern.variables, 0);
  }

  void inside(const std::function<void()>& program) override {
#pragma omp parallel num_threads(threads_)
#pragma omp single
    program();
  }

  void submit(uint32_t begin, uint32_t end) override {
    char* variables = variables_.data();
    for (uint32_t i = begin; i < end; ++i) {
      const PatternOp& op = pattern_->ops[i];
      [[maybe_unused]] char* w = variables + op.write;
      [[maybe_unused]] char* a = variables + op.reads[0];
      [[maybe_unused]] char* b = variables + op.reads[1];
      switch (op.read_count * 2 + (op.writes ? 1 : 0)) {
        case 1: {
#pragma omp task depend(inout : *w) firstprivate(i)
          run_body(i);
          break;
        }
        case 2: {
#pragma omp task depend(in : *a) firstprivate(i)
          run_body(i);
          break;
        }
        case 3: {
#pragma omp task depend(in : *a) depend(inout : *w) firstprivate(i)
          run_body(i);
          break;
        }
        case 5: {
#pragma omp task depend(in : *a, *b) depend(inout : *w) firstprivate(i)
          run_body(i);
          break;
        }
        default:
          std::abort();
      }
    }
  }

  void wait_all() override {
#pragma omp taskwait
  }

 private:
  int threads_;
  const Pattern* pattern_ = nullptr;
  std::vector<char> variables_;
};

}  // namespace

std::unique_ptr<System> make_omp(int threads) { return std::make_unique<Omp>(threads); }

}  // namespace mx::bench
