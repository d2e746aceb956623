#include "nn/data/steps.h"

#include "engine/base/error.h"

namespace mx::data::detail {

using mx::detail::ArrayImpl;
using mx::detail::ArrayUse;
using mx::detail::PushedArrays;
using mx::detail::Touch;

bool has_ended(const NDArray& token) {
  try {
    return token.wait(0);
  } catch (const Error&) {
    return true;
  }
}

// Called when the program's operations on the last batch have been pushed.
//
// Each pushed operation updates the variable of one array of the batch, so it runs after all operations on
// that array; it changes no value. If the array is poisoned, the engine skips the update and poisons the turn
// too. The turn is recovered, so that the error does not reach later batches. Each array has its own update,
// so that a poisoned array does not skip the wait for the others.
bool Turn::end(const std::vector<NDArray>& arrays) const {
  Engine& engine = current_engine();
  bool busy = false;
  for (const NDArray& array : arrays) {
    ArrayImpl& impl = array.impl();
    if (impl.storage->on_cpu() && impl.storage->quiet()) continue;
    const ArrayUse uses[] = {{&impl, Touch::update}, {&array_.impl(), Touch::update}};
    mx::detail::push_on(
        engine, uses, [](const RunContext&, PushedArrays&) {}, {.name = "end_turn"},
        std::source_location::current());
    engine.recover(array_.var());
    busy = true;
  }
  return busy;
}

}  // namespace mx::data::detail
