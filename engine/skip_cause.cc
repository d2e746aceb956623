#include "engine/skip_cause.h"

#include "engine/base/current_task.h"
#include "engine/detail/dependency.h"
#include "engine/detail/engine_impl.h"
#include "engine/detail/failure.h"
#include "engine/detail/op.h"

namespace mx {

std::exception_ptr skip_cause() {
  using namespace detail;
  Op* const op = current_task.operation;
  if (op == nullptr || (op->flags & (kOpSkip | kOpCancelled | kOpNode)) != kOpSkip) return nullptr;
  // Without the engine's lock: the operation holds the version that is poisoned, so it cannot change.
  const Failure* const cause = DependencyState<EngineImpl>::cause_of(op);
  return cause == nullptr ? nullptr : cause->error;
}

}  // namespace mx
