// at_replay(): for layers that count how often memory is changed. Internal.
#pragma once

#include <functional>

namespace mx::detail {

/// Arranges that every replay of the segment that the calling thread is recording calls `changed` before it
/// is queued. Only the first call for a `key` counts. With `fresh` nothing has read the memory yet: a replay
/// then creates its content and does not change it, so `changed` is not called. Precondition: inside
/// record().
void at_replay(const void* key, bool fresh, std::function<void()> changed);

}  // namespace mx::detail
