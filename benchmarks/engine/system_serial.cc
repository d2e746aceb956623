// serial: calls the operations directly, one after the other. On one core no engine can be faster.
#include "benchmarks/engine/body.h"
#include "benchmarks/engine/system.h"

namespace mx::bench {
namespace {

class Serial : public System {
 public:
  void prepare(const Pattern&) override {}
  void submit(uint32_t begin, uint32_t end) override {
    for (uint32_t i = begin; i < end; ++i) {
      run_body(i);
      asm volatile("" ::: "memory");  // keeps the compiler from removing the loop if the body is empty
    }
  }
  void wait_all() override {}
};

}  // namespace

std::unique_ptr<System> make_serial() { return std::make_unique<Serial>(); }

}  // namespace mx::bench
