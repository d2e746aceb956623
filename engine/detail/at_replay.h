// For layers that count how often memory is changed, and so must know about replays. Internal.
//
// A replay changes memory without a call that says so. There are two cases, and the layer tells them apart
// while it records:
//   - Memory that somebody has seen: at_replay() has the layer called at every replay.
//   - Memory that the segment itself makes: the layer keeps a ReplayCount beside it and adds that to its own
//     count, so a replay costs nothing for it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

namespace mx::detail {

/// How often a segment has been replayed: counted before the replay is queued. It may outlive the segment.
struct ReplayCount {
  std::atomic<uint32_t> refs{1};
  std::atomic<uint32_t> replays{0};
  static void destroy(ReplayCount* count) noexcept { delete count; }
};

/// Arranges that every replay of the segment that the calling thread is recording calls `changed` before it
/// is queued. Only the first call for a `key` counts. Precondition: inside record().
void at_replay(const void* key, std::function<void()> changed);

/// The count of the segment that the calling thread records; null if it records none.
ReplayCount* replays_of_recording();

/// Returns true if each replay of the segment that the calling thread is recording makes the memory again
/// that the segment of `maker` makes: it is that segment, or that one has been replayed in this recording.
/// Precondition: inside record().
bool recording_repeats(const ReplayCount& maker);

}  // namespace mx::detail
