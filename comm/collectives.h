// Collectives: all operations of a communicator, over a Transport. Internal; transport_communicator.h makes a
// communicator of it.
//
// Thread-safety: one thread at a time.
#pragma once

#include <optional>
#include <utility>

#include "comm/call.h"
#include "comm/cost_model.h"
#include "comm/transport.h"

namespace mx::comm {

class Collectives {
 public:
  explicit Collectives(Transport& transport);

  /// Does one call, which has been checked with check_request(). Blocks. Throws what the transport throws,
  /// and ProtocolError if another rank makes another call; then the transport is aborted.
  void run(const Request& request, Deadline deadline);

  const CostModel& model() const { return model_; }
  /// All ranks must set equal models, before the next call.
  void set_model(CostModel model) { model_ = std::move(model); }
  /// Uses one algorithm for all allreduces whose order it keeps; for the others, and without, the model
  /// chooses. All ranks must set the same.
  void set_algorithm(std::optional<Algorithm> algorithm) { algorithm_ = algorithm; }

 private:
  Algorithm algorithm_of(const Request& request) const;
  static void run_alone(const Request& request);
  void run_together(Call& call, Algorithm algorithm);

  Transport& transport_;
  Workspace workspace_;
  CostModel model_;
  std::optional<Algorithm> algorithm_;
  CallNumbers numbers_;
};

}  // namespace mx::comm
