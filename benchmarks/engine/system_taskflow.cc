// taskflow: dependent-async tasks. Taskflow depends on tasks, not variables. So the submitting thread tracks
// the last writer and the readers since then, as Taskflow's users do.
#include <taskflow/taskflow.hpp>

#include "benchmarks/engine/body.h"
#include "benchmarks/engine/system.h"

namespace mx::bench {
namespace {

class Taskflow : public System {
 public:
  explicit Taskflow(int threads) : executor_(static_cast<size_t>(threads)) {}

  void prepare(const Pattern& pattern) override {
    pattern_ = &pattern;
    variables_.clear();
    variables_.resize(pattern.variables);
  }

  void submit(uint32_t begin, uint32_t end) override {
    for (uint32_t i = begin; i < end; ++i) {
      const PatternOp& op = pattern_->ops[i];
      before_.clear();
      for (int k = 0; k < op.read_count; ++k) after_writer(variables_[op.reads[k]]);
      if (op.writes) {
        Variable& variable = variables_[op.write];
        if (variable.readers.empty()) after_writer(variable);
        before_.insert(before_.end(), variable.readers.begin(), variable.readers.end());
      }
      tf::AsyncTask task =
          executor_.silent_dependent_async([i] { run_body(i); }, before_.begin(), before_.end());
      for (int k = 0; k < op.read_count; ++k) variables_[op.reads[k]].readers.push_back(task);
      if (op.writes) {
        variables_[op.write].readers.clear();
        variables_[op.write].writer = std::move(task);
      }
    }
  }

  void wait_all() override { executor_.wait_for_all(); }

 private:
  struct Variable {
    tf::AsyncTask writer;
    std::vector<tf::AsyncTask> readers;
  };

  void after_writer(const Variable& variable) {
    if (!variable.writer.empty()) before_.push_back(variable.writer);
  }

  tf::Executor executor_;
  const Pattern* pattern_ = nullptr;
  std::vector<Variable> variables_;
  std::vector<tf::AsyncTask> before_;
};

}  // namespace

std::unique_ptr<System> make_taskflow(int threads) { return std::make_unique<Taskflow>(threads); }

}  // namespace mx::bench
