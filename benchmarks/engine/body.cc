#include "benchmarks/engine/body.h"

#include "benchmarks/engine/checker.h"
#include "benchmarks/support/clock.h"

namespace mx::bench {

Body g_body;

void run_slow_body(uint32_t i) {
  switch (g_body.kind) {
    case BodyKind::empty:
      break;
    case BodyKind::check:
      g_body.checker->run(i);
      break;
    case BodyKind::spin:
      spin(g_body.spins);
      break;
    case BodyKind::stamp:
      g_body.stamp_ns.store(now_ns(), std::memory_order_release);
      break;
  }
}

}  // namespace mx::bench
