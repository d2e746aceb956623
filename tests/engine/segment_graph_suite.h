// The fixture for tests of segments that replay as a device graph.
#pragma once

#include <atomic>
#include <string>

#include "engine/base/error.h"
#include "engine/device/registry.h"
#include "tests/engine/stream_suite.h"

namespace mx::test {

class GraphSegments : public StreamSuite {
 protected:
  size_t in_use() const { return get_device(device()).memory_stats().in_use_bytes; }

  /// Adds `one` to the array with a function that counts its calls. All arguments must outlive the work.
  void push_counted(const StreamArray& a, const StreamArray& one, std::atomic<int>& calls) {
    engine_->push(
        [this, &a, &one, &calls](RunContext run) {
          ++calls;
          ops().add(*run.stream(), a.memory.data(), one.memory.data(), a.memory.data(), a.memory.size());
        },
        {.reads = {one.var}, .updates = {a.var}, .context = device(), .name = "counted"});
  }

  /// Returns the message that a wait for the variable throws, or "".
  std::string message_of(Var var) {
    try {
      engine_->wait(var);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }
};

}  // namespace mx::test
