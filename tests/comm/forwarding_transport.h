// A Transport that does what another one does. Tests derive from it to change a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/transport.h"

namespace mx::comm::testing {

class ForwardingTransport : public Transport {
 public:
  explicit ForwardingTransport(std::unique_ptr<Transport> below) : below_(std::move(below)) {}
  const std::string& type() const override { return below_->type(); }
  int rank() const override { return below_->rank(); }
  int size() const override { return below_->size(); }
  std::string host(int rank) const override { return below_->host(rank); }
  std::string machine(int rank) const override { return below_->machine(rank); }
  void post_send(int peer, const void* data, size_t bytes) override { below_->post_send(peer, data, bytes); }
  void post_receive(int peer, void* data, size_t bytes) override { below_->post_receive(peer, data, bytes); }
  void await_receive(int peer, Deadline deadline) override { below_->await_receive(peer, deadline); }
  size_t await_first(const std::vector<int>& peers, Deadline deadline) override {
    return below_->await_first(peers, deadline);
  }
  uint64_t arrived(int peer) const override { return below_->arrived(peer); }
  void finish(Deadline deadline) override { below_->finish(deadline); }
  void flush(Deadline deadline) noexcept override { below_->flush(deadline); }
  void abort(std::exception_ptr reason) override { below_->abort(std::move(reason)); }

 protected:
  const std::unique_ptr<Transport> below_;
};

}  // namespace mx::comm::testing
