// A communicator that passes everything on to another one. Tests derive from it and change start().
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "comm/communicator.h"

namespace mx::comm {

class ForwardingCommunicator : public Communicator {
 public:
  explicit ForwardingCommunicator(std::shared_ptr<Communicator> below) : below_(std::move(below)) {}
  const std::string& type() const override { return below_->type(); }
  int rank() const override { return below_->rank(); }
  int size() const override { return below_->size(); }
  std::string host(int rank) const override { return below_->host(rank); }
  int64_t default_timeout_ms() const override { return below_->default_timeout_ms(); }
  Context device() const override { return below_->device(); }
  void start(Request request) override { below_->start(std::move(request)); }
  void abort(std::exception_ptr reason) override { below_->abort(std::move(reason)); }
  std::exception_ptr failure() const override { return below_->failure(); }
  std::shared_ptr<void> allocate(size_t bytes) override { return below_->allocate(bytes); }

 private:
  const std::shared_ptr<Communicator> below_;
};

}  // namespace mx::comm
