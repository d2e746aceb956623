// starpu: StarPU's sequential task flow, with a handle without data per variable. `threads` is the number of
// its workers; StarPU's submitting thread is not one of them.
#include <starpu.h>

#include <cstdlib>

#include "benchmarks/engine/body.h"
#include "benchmarks/engine/system.h"

namespace mx::bench {
namespace {

void starpu_body(void**, void* argument) {
  run_body(static_cast<uint32_t>(reinterpret_cast<uintptr_t>(argument)));
}

class StarPu : public System {
 public:
  explicit StarPu(int threads) {
    for (int reads = 0; reads <= kMaxReads; ++reads) {
      for (int writes = 0; writes <= 1; ++writes) init_codelet(codelets_[reads * 2 + writes], reads, writes);
    }
    starpu_conf conf;
    starpu_conf_init(&conf);
    conf.ncpus = threads;
    conf.ncuda = 0;
    conf.nopencl = 0;
    if (starpu_init(&conf) != 0) std::abort();
  }

  ~StarPu() override {
    forget_handles();
    starpu_shutdown();
  }

  void prepare(const Pattern& pattern) override {
    forget_handles();
    pattern_ = &pattern;
    handles_.resize(pattern.variables);
    for (starpu_data_handle_t& handle : handles_) starpu_void_data_register(&handle);
  }

  void submit(uint32_t begin, uint32_t end) override {
    for (uint32_t i = begin; i < end; ++i) {
      const PatternOp& op = pattern_->ops[i];
      starpu_task* task = starpu_task_create();
      task->cl = &codelets_[op.read_count * 2 + (op.writes ? 1 : 0)];
      int buffers = 0;
      for (int k = 0; k < op.read_count; ++k) task->handles[buffers++] = handles_[op.reads[k]];
      if (op.writes) task->handles[buffers++] = handles_[op.write];
      task->cl_arg = reinterpret_cast<void*>(uintptr_t{i});
      task->cl_arg_size = 0;
      if (starpu_task_submit(task) != 0) std::abort();
    }
  }

  void wait_all() override { starpu_task_wait_for_all(); }
  void pause() override { starpu_pause(); }
  void resume() override { starpu_resume(); }

 private:
  static constexpr int kMaxReads = 2;

  static void init_codelet(starpu_codelet& codelet, int reads, int writes) {
    starpu_codelet_init(&codelet);
    codelet.where = STARPU_CPU;
    codelet.cpu_funcs[0] = starpu_body;
    codelet.nbuffers = reads + writes;
    for (int k = 0; k < reads; ++k) codelet.modes[k] = STARPU_R;
    if (writes != 0) codelet.modes[reads] = STARPU_RW;
    codelet.name = "body";
  }

  void forget_handles() {
    for (starpu_data_handle_t handle : handles_) starpu_data_unregister_submit(handle);
    handles_.clear();
    starpu_task_wait_for_all();
  }

  starpu_codelet codelets_[2 * (kMaxReads + 1)];
  const Pattern* pattern_ = nullptr;
  std::vector<starpu_data_handle_t> handles_;
};

}  // namespace

std::unique_ptr<System> make_starpu(int threads) { return std::make_unique<StarPu>(threads); }

}  // namespace mx::bench
