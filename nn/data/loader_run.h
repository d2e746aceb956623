// Loader::Run: one loop over an epoch. Internal to the loader.
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <vector>

#include "nn/data/epoch_order.h"
#include "nn/data/loader.h"

namespace mx::data {

/// The immutable part, shared by a loader and its loops.
struct Loader::Core {
  DatasetHandle dataset;
  LoaderOptions options;
  OrderOptions order;
  int64_t samples = 0;  // of this shard
  int64_t batches = 0;
};

struct Loader::Progress {
  int64_t epoch = 0;
  int64_t delivered = 0;  // batches
};

class Loader::Run {
 public:
  /// Pushes the first batches.
  Run(std::shared_ptr<const Core> core, int64_t epoch, int64_t position);

  /// Advances to the next batch. Rethrows the exception if that batch could not be pushed.
  void next();
  bool at_end() const { return at_end_; }
  Batch& batch() { return current_; }
  const std::shared_ptr<Progress>& progress() const { return progress_; }

 private:
  /// A batch in flight, or the exception that was thrown when it was pushed.
  struct Prepared {
    Batch batch;
    std::exception_ptr error;
  };

  void fill_queue();
  Prepared prepare(int64_t number, bool in_turn) const;
  NDArray indices_of(int64_t number) const;
  NDArray in_its_turn(const NDArray& indices) const;
  bool end_turn();

  std::shared_ptr<const Core> core_;
  std::shared_ptr<Progress> progress_;
  EpochOrder order_;
  std::deque<Prepared> queue_;
  int64_t pushed_;        // the next batch to push
  bool in_turn_ = false;  // the next batch must wait for turn_
  Batch current_;
  std::vector<NDArray> handed_out_;  // the arrays of current_, unaffected by assignments of the program
  /// Orders loading behind computation: its variable is updated when the computation on a batch has ended,
  /// and the operations that load a later batch read it. It never holds a value.
  NDArray turn_;
  bool at_end_ = false;
};

}  // namespace mx::data
