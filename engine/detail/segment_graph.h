// SegmentGraph: a segment of one accelerator as a graph of that device (DeviceGraph). Internal.
//
// A replay is then one operation on a stream of the device's compute lane. The first to be issued calls the
// recorded functions, once each and in program order, with a stream that captures what they enqueue; from
// then on replays only launch the graph. Capturing is left to the issue, rather than done when the replay is
// pushed, because only then has the host code that the segment depends on run: functions may read what it
// made.
//
// A function that the capture cannot hold makes a segment that is replayed in the other way ever after.
// Replays that have been pushed as a graph by then call the functions in program order on their own stream,
// which is what the graph would have done, one after another.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/device/device.h"
#include "engine/run_context.h"

namespace mx::detail {

class SegmentImpl;

class SegmentGraph {
 public:
  /// Null unless all operations are synchronous ones of one accelerator, in a mode that uses graphs. Does
  /// nothing with the device.
  static std::unique_ptr<SegmentGraph> make(const SegmentImpl& segment);

  SegmentGraph(Device& device, uint8_t lane) : device_(device), lane_(lane) {}

  /// Should the next replay be pushed as a graph? Any thread.
  bool wanted();
  /// The lane that replays are pushed to, as in Op::device.
  uint8_t lane() const { return lane_; }

  /// The function of a replay: enqueues it on context.stream(). Calls follow one another, since replays do.
  /// Throws what the recorded functions throw, with their names; the next call captures again then.
  void run(const SegmentImpl& segment, const RunContext& context);

 private:
  enum class State : uint8_t {
    untried,
    wanted,   // the device has graphs
    refused,  // it has none, or cannot capture this segment
  };

  void capture(const SegmentImpl& segment, const RunContext& context);
  void refuse(const char* name, const char* why);
  static void run_node(const SegmentImpl& segment, uint32_t index, const RunContext& context, Stream& stream);

  Device& device_;
  const uint8_t lane_;
  std::atomic<State> state_{State::untried};
  std::mutex mutex_;                       // guards builder_
  std::unique_ptr<GraphBuilder> builder_;  // for the first capture
  std::unique_ptr<DeviceGraph> graph_;     // touched by run() only
};

}  // namespace mx::detail
