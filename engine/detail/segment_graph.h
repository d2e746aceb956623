// SegmentGraph: a segment of one accelerator as a graph of that device (DeviceGraph). Internal.
//
// A replay is then one operation on a stream of the device's compute lane. The first replay calls the
// recorded functions in program order on its own stream, without a graph. So kernels and libraries are
// loaded, handles made and caches filled outside a capture, where such calls may be forbidden. When the
// second replay is issued, it calls the functions again, with a stream that captures what they enqueue. Later
// replays only launch the graph. Functions are captured when the replay is issued, not when it is pushed,
// because they may read what earlier host operations produce, and those have run only then.
//
// If a function cannot be captured, the segment is replayed without a graph from then on. Replays that were
// already pushed as a graph call the functions in program order on their own stream. The result is the same,
// but the nodes run one after another.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "engine/device/device.h"
#include "engine/run_context.h"

namespace mx::detail {

class SegmentImpl;

class SegmentGraph {
 public:
  /// Returns null unless all operations are synchronous ones of one accelerator and the mode uses graphs.
  /// Does not call the device.
  static std::unique_ptr<SegmentGraph> make(const SegmentImpl& segment);

  SegmentGraph(Device& device, uint8_t lane) : device_(device), lane_(lane) {}

  /// Returns true if the next replay should be pushed as a graph. Any thread.
  bool wanted();
  /// Returns the lane that replays are pushed to, as in Op::device.
  uint8_t lane() const { return lane_; }

  /// The function of a replay: enqueues the replay on context.stream(). Calls never overlap, because replays
  /// of one segment do not. Throws what a recorded function throws, with the operation's name in the message;
  /// the next call then captures again.
  void run(const SegmentImpl& segment, const RunContext& context);

 private:
  enum class State : uint8_t {
    untried,
    wanted,   // the device has graphs
    refused,  // the device has no graphs, or cannot capture this segment
  };

  void capture(const SegmentImpl& segment, const RunContext& context);
  void refuse(const char* name, const char* why);
  static void run_node(const SegmentImpl& segment, uint32_t index, const RunContext& context, Stream& stream);

  Device& device_;
  const uint8_t lane_;
  std::atomic<State> state_{State::untried};
  std::mutex mutex_;                       // guards builder_
  std::unique_ptr<GraphBuilder> builder_;  // for the first capture
  bool has_run_ = false;                   // used by run() only, like graph_
  std::unique_ptr<DeviceGraph> graph_;
};

}  // namespace mx::detail
