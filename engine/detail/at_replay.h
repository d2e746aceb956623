// at_replay(): for layers that count how often memory is changed. Internal.
#pragma once

#include <functional>

namespace mx::detail {

/// From inside record(): calls `changed` at every replay of the segment that the calling thread records,
/// before it is queued. Only the first call for a `key` counts. `fresh`: nobody has seen the memory yet, so a
/// replay makes its content and changes none, and `changed` is not called.
void at_replay(const void* key, bool fresh, std::function<void()> changed);

}  // namespace mx::detail
