// A communicator of rank 0 of two, whose requests end when the test says so.
#pragma once

#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"

namespace mx::test {

class KeepingCommunicator final : public comm::Communicator {
 public:
  const std::string& type() const override { return type_; }
  int rank() const override { return 0; }
  int size() const override { return 2; }
  std::string host(int) const override { return "here"; }
  int64_t default_timeout_ms() const override { return 60000; }
  void start(comm::Request request) override { kept.push_back(std::move(request)); }
  void abort(std::exception_ptr) override {}
  std::exception_ptr failure() const override { return nullptr; }

  /// Ends the oldest request. In an allgather, rank 1 sends what rank 0 sends.
  void end_one(const std::exception_ptr& error = nullptr) {
    const comm::Request first = std::move(kept.front());
    kept.erase(kept.begin());
    if (first.collective == comm::Collective::allgather) {
      const size_t half = first.count * comm::size_of(first.type) / 2;
      std::memcpy(static_cast<char*>(first.out) + half, first.in, half);
    }
    first.done(error);
  }

  std::vector<comm::Request> kept;

 private:
  const std::string type_ = "keeping";
};

}  // namespace mx::test
