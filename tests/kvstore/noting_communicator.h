// A communicator that notes every request and passes it on to another one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "tests/comm/forwarding_communicator.h"

namespace mx::test {

/// What was asked of a communicator.
struct NotedCall {
  comm::Collective collective;
  size_t bytes;  ///< of all elements
  int64_t timeout_ms;
  std::string what;
  const void* in;
  void* out;

  // What all ranks must have in common: not the memory, and not the limit, which depends on what each rank
  // waits for.
  friend bool operator==(const NotedCall& a, const NotedCall& b) {
    return a.collective == b.collective && a.bytes == b.bytes && a.what == b.what;
  }
};

class NotingCommunicator final : public comm::ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  void start(comm::Request request) override {
    {
      const std::lock_guard lock(mutex_);
      calls_.push_back({request.collective, request.count * comm::size_of(request.type),
                        request.options.timeout_ms, request.options.what, request.in, request.out});
    }
    ForwardingCommunicator::start(std::move(request));
  }

  /// Returns the requests of one kind since the last call of this function, and forgets all.
  std::vector<NotedCall> take(comm::Collective collective) {
    const std::lock_guard lock(mutex_);
    std::vector<NotedCall> found;
    for (NotedCall& call : calls_)
      if (call.collective == collective) found.push_back(std::move(call));
    calls_.clear();
    return found;
  }
  /// Returns all requests since the last call of a function like this.
  std::vector<NotedCall> take_all() {
    const std::lock_guard lock(mutex_);
    return std::exchange(calls_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<NotedCall> calls_;
};

}  // namespace mx::test
