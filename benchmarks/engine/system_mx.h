// Our engine as a System; used directly by the cases for our engine only.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "benchmarks/engine/system.h"
#include "engine/engine.h"

namespace mx::bench {

/// Returns default options, independent of the MX_* variables, with as many workers as the process has
/// processors.
EngineOptions bench_options(int threads);

class MxSystem : public System {
 public:
  explicit MxSystem(const EngineOptions& options);
  ~MxSystem() override;
  void prepare(const Pattern& pattern) override;
  void submit(uint32_t begin, uint32_t end) override;
  void wait_all() override;
  void pause() override;
  void resume() override;

  Engine& engine() { return *engine_; }

 private:
  void forget_variables();

  std::unique_ptr<Engine> engine_;
  std::vector<Var> vars_;
  const Pattern* pattern_ = nullptr;
};

}  // namespace mx::bench
