// Loader::Run: one loop over an epoch. Internal to the loader.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <vector>

#include "nn/data/epoch_order.h"
#include "nn/data/loader.h"
#include "nn/data/pending_batch.h"
#include "nn/data/steps.h"

namespace mx::data {

/// The immutable part, shared by a loader and its loops.
struct Loader::Core {
  DatasetHandle dataset;
  LoaderOptions options;
  OrderOptions order;
  int64_t samples = 0;  // of this shard
  int64_t batches = 0;
  std::shared_ptr<const std::vector<std::string>> names;  // of the fields
};

struct Loader::Progress {
  int64_t epoch = 0;
  int64_t delivered = 0;  // batches
};

class Loader::Run final : public detail::BatchRun {
 public:
  /// Pushes the first batches.
  Run(std::shared_ptr<const Core> core, int64_t epoch, int64_t position, const std::source_location& where);

  const std::shared_ptr<Progress>& progress() const { return progress_; }

 private:
  /// A batch in flight, or the exception that was thrown when it was pushed. `pending` is set as long as its
  /// shapes are not known.
  struct Prepared {
    int64_t number = 0;
    NDArray indices{};
    std::optional<PendingBatch> pending{};
    Batch batch{};
    std::exception_ptr error = nullptr;
  };

  void next() override;
  bool step();
  void fill_queue();
  void finish_what_is_ready();
  Prepared prepare(int64_t number, bool in_turn) const;
  /// Sets the batch: waits for its shapes, then pushes transforms and copies.
  void finish(Prepared& prepared) const;
  std::vector<int64_t> indices_of(int64_t number) const;
  NDArray in_its_turn(const NDArray& indices) const;

  std::shared_ptr<const Core> core_;
  std::shared_ptr<Progress> progress_;
  EpochOrder order_;
  std::vector<std::vector<int64_t>> lists_;  // of a sampler of batches: those of this shard
  std::deque<Prepared> queue_;
  int64_t pushed_;                   // the next batch to push
  bool in_turn_ = false;             // the next batch must wait for turn_
  std::vector<NDArray> handed_out_;  // the arrays of current_, unaffected by assignments of the program
  detail::Turn turn_;
  const std::source_location where_;  // of begin()
};

}  // namespace mx::data
