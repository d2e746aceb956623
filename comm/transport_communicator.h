// TransportCommunicator: a communicator made of a Transport and the algorithms of comm/collectives.h.
//
// Errors of a call begin with its description: "[allreduce of 10 x f32 'fc1.weight'] ...".
//
// Thread-safety: as Communicator.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "comm/collectives.h"
#include "comm/cost_model.h"
#include "comm/queued_communicator.h"
#include "comm/transport.h"

namespace mx::comm {

class TransportCommunicator final : public QueuedCommunicator {
 public:
  TransportCommunicator(std::unique_ptr<Transport> transport, int64_t timeout_ms);
  ~TransportCommunicator() override;

  const std::string& type() const override { return transport_->type(); }
  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }
  std::string host(int rank) const override { return transport_->host(rank); }
  int64_t default_timeout_ms() const override { return timeout_ms_; }

  /// Measures the algorithms of allreduce with a few sizes and uses the result from then on. A collective
  /// call. Call it before any other thread starts calls. Returns the model, the same on all ranks: the times
  /// of rank 0 count. Runs a fixed number of calls, `repeats` + 1 per size and algorithm, so the number of
  /// messages does not depend on how long they take.
  CostModel fit(int repeats = kFitRepeats);
  static constexpr int kFitRepeats = 3;
  CostModel model() const;
  /// All ranks must set the same, and no call may be running. Without a value the model chooses.
  void set_algorithm(std::optional<Algorithm> algorithm);
  void set_model(const CostModel& model);

 protected:
  void execute(const Request& request, Deadline deadline) override;
  void interrupt(std::exception_ptr reason) override;
  void disconnect() noexcept override { transport_->leave(); }

 private:
  const std::unique_ptr<Transport> transport_;
  const int64_t timeout_ms_;
  mutable std::mutex mutex_;  // guards collectives_ against the setters
  Collectives collectives_;
};

}  // namespace mx::comm
