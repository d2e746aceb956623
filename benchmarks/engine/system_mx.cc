// mx: our engine, with dependencies from declared reads and writes. mx_replay: a recorded segment.
#include "benchmarks/engine/system_mx.h"

#include <cstdlib>

#include "benchmarks/engine/body.h"
#include "engine/engine.h"

namespace mx::bench {

EngineOptions bench_options(int threads) {
  EngineOptions options;
  options.threads = threads;
  return options;
}

MxSystem::MxSystem(const EngineOptions& options) : engine_(std::make_unique<Engine>(options)) {}

MxSystem::~MxSystem() { forget_variables(); }

void MxSystem::forget_variables() {
  for (Var v : vars_) engine_->delete_var(v);
  vars_.clear();
}

void MxSystem::prepare(const Pattern& pattern) {
  forget_variables();
  engine_->wait_all();
  pattern_ = &pattern;
  vars_.reserve(pattern.variables);
  for (uint32_t i = 0; i < pattern.variables; ++i) vars_.push_back(engine_->new_var());
}

void MxSystem::submit(uint32_t begin, uint32_t end) {
  Engine& engine = *engine_;
  const Var* v = vars_.data();
  for (uint32_t i = begin; i < end; ++i) {
    const PatternOp& op = pattern_->ops[i];
    const auto fn = [i](RunContext) { run_body(i); };
    switch (op.read_count * 2 + (op.writes ? 1 : 0)) {
      case 1:
        engine.push(fn, {.writes = {v[op.write]}});
        break;
      case 2:
        engine.push(fn, {.reads = {v[op.reads[0]]}});
        break;
      case 3:
        engine.push(fn, {.reads = {v[op.reads[0]]}, .writes = {v[op.write]}});
        break;
      case 5:
        engine.push(fn, {.reads = {v[op.reads[0]], v[op.reads[1]]}, .writes = {v[op.write]}});
        break;
      case 7:
        engine.push(fn, {.reads = {v[op.reads[0]], v[op.reads[1]], v[op.reads[2]]}, .writes = {v[op.write]}});
        break;
      default:
        std::abort();
    }
  }
}

void MxSystem::wait_all() { engine_->wait_all(); }
void MxSystem::pause() { engine_->pause(); }
void MxSystem::resume() { engine_->resume(); }

namespace {

class MxReplay : public MxSystem {
 public:
  using MxSystem::MxSystem;
  void prepare(const Pattern& pattern) override {
    segment_ = Segment();
    MxSystem::prepare(pattern);
    segment_ = engine().record([&] { MxSystem::submit(0, pattern.size()); });
  }
  void submit(uint32_t, uint32_t) override { segment_.replay(); }

 private:
  Segment segment_;
};

}  // namespace

std::unique_ptr<System> make_mx(int threads) { return std::make_unique<MxSystem>(bench_options(threads)); }

std::unique_ptr<System> make_mx_pausing(int threads, uint32_t ops) {
  EngineOptions options = bench_options(threads);
  options.max_ops_in_flight = int64_t{ops} + 1;
  return std::make_unique<MxSystem>(options);
}

std::unique_ptr<System> make_mx_replay(int threads) {
  return std::make_unique<MxReplay>(bench_options(threads));
}

}  // namespace mx::bench
