// Loader: a data set in batches, epoch after epoch, loaded and transformed while the program computes.
//
//   data::Loader loader(data::mnist("examples/data/mnist", data::Split::train),
//                       {.batch_size = 64, .shuffle = true});
//   for (int epoch = 0; epoch < 10; ++epoch)
//     for (auto& [images, labels] : loader) step(images, labels);
//
// Nothing waits, and a loader has no threads: gathering, transforms and copies to a device are operations of
// the engine. They are pushed `prefetch` batches before their batch is handed out. They start when all
// operations have ended that the program pushed with the batch `prefetch` + 1 before, until it asked for the
// next one. So at most `prefetch` + 1 batches are in memory, besides those that the program keeps. With
// prefetch 0, loading of a batch starts when the computation on the previous one has finished.
//
// The content of an epoch depends on the seed, the number of the epoch, the number of samples and the shards
// alone. The order is the same on every platform, and a batch has the same bits whatever `prefetch`, threads
// and devices.
//
// The loop may be left at any place, by break, return or an exception, and the loader may be destroyed before
// the loop's batches: operations own what they use. Every begin() starts an epoch of its own, so two loops
// may run at once, each in its own epoch.
//
// Errors: if a sample or its transform fails, waiting for the batch's arrays throws. If the problem is known
// when the batch is pushed, the step to that batch throws, never an earlier one; the next step takes the
// batch after it.
//
// Thread-safety: a loader and its iterators are used by one thread at a time; batches by any. The rules of
// arrays about engines hold (EngineScope): a loop runs on the engine of its thread. A loader that was moved
// from may only be assigned to and destroyed; other calls throw InvalidState.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>

#include "engine/device/context.h"
#include "nn/data/batch.h"
#include "nn/data/dataset.h"
#include "nn/data/transform.h"

namespace mx::data {

struct LoaderOptions {
  int64_t batch_size = 1;
  bool shuffle = false;    ///< another order in each epoch
  bool drop_last = false;  ///< leave out a last batch that is not full
  int64_t seed = 0;        ///< of the order and of random transforms
  int64_t prefetch = 2;    ///< how many batches to load during the computation on one
  /// The part of each epoch that this loader takes: all parts have the same size and together cover every
  /// sample (epoch_order.h).
  int64_t shard = 0, shards = 1;
  /// Where batches go, after their transform. For a GPU host memory is page-locked without asking: see
  /// docs/data.md.
  Context context = cpu();
  Transform transform{};  ///< of the data set's first array
};

/// Where in its epochs a loader is. Plain numbers, to be saved with a model.
struct LoaderState {
  int64_t epoch = 0;
  int64_t position = 0;  ///< batches of the epoch that have been handed out
  // These must be the same when it is restored.
  int64_t seed = 0, samples = 0, batch_size = 0, shard = 0, shards = 0;
  bool shuffle = false, drop_last = false;

  friend bool operator==(const LoaderState&, const LoaderState&) = default;
};

class Loader {
 public:
  class Iterator;

  /// Throws InvalidArgument for an empty data set, for options that make no sense, for a device that is not
  /// there, and when drop_last would leave no batch at all.
  Loader(DatasetHandle dataset, LoaderOptions options = {});
  Loader(Loader&&) noexcept;
  Loader& operator=(Loader&&) noexcept;
  ~Loader();

  /// Starts the next epoch (after restore(): goes on where the state was).
  Iterator begin();
  std::default_sentinel_t end() const { return {}; }

  /// How many there are in each epoch of this shard.
  int64_t batches() const;
  int64_t samples() const;
  const LoaderOptions& options() const;

  /// The place after the batch that was handed out last by the loop that was begun last. A state taken at the
  /// end of a loop's body continues with the next batch. A state taken after a loop was left continues with
  /// the batch after the last one, although begin() would start a new epoch.
  LoaderState state() const;
  /// The next begin() goes on from there, with the same batches as the loader that gave the state. Throws
  /// InvalidArgument for the state of a loader with other samples, batches, shards or seed, and for an epoch
  /// that cannot be counted on from (2^63 - 1).
  void restore(const LoaderState& state);

 private:
  struct Core;
  struct Progress;
  class Run;

  const Core& core() const;

  std::shared_ptr<const Core> core_;
  std::shared_ptr<Progress> progress_;  // of the loop that was begun last
  int64_t next_epoch_ = 0, next_position_ = 0;
};

/// An input iterator: copies share their place.
class Loader::Iterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using iterator_concept = std::input_iterator_tag;
  using value_type = Batch;
  using difference_type = std::ptrdiff_t;
  using pointer = Batch*;
  using reference = Batch&;

  Iterator() = default;
  Batch& operator*() const;
  Batch* operator->() const { return &**this; }
  /// To the next batch. Throws if it could not be pushed; the next ++ goes on behind it.
  Iterator& operator++();
  void operator++(int) { ++*this; }
  friend bool operator==(const Iterator& i, std::default_sentinel_t) { return i.at_end(); }

 private:
  friend class Loader;
  explicit Iterator(std::shared_ptr<Run> run) : run_(std::move(run)) {}
  bool at_end() const;

  std::shared_ptr<Run> run_;
};

}  // namespace mx::data
