// Loader: iterates over a data set in batches, which are loaded and transformed while the program computes.
//
//   data::Loader loader(data::mnist("examples/data/mnist", data::Split::train),
//                       {.batch_size = 64, .shuffle = true});
//   for (int epoch = 0; epoch < 10; ++epoch)
//     for (auto& [images, labels] : loader) step(images, labels);
//
// A loader has no threads: gathering, transforms and copies to a device are operations of the engine. No call
// waits, with one exception: if the data set knows the shapes of a batch only when it has been read
// (sample_dataset.h), the step to that batch waits for that. Such a loop must not run inside an operation.
// The loader pushes the operations of batch k when the program receives batch k - `prefetch`.
// They start when the program's operations on batch k - `prefetch` - 1 have ended; those are all operations
// that use its arrays and were pushed before the program asked for the next batch. So at most `prefetch` + 1
// batches are in memory, besides those that the program keeps. With prefetch 0, loading of a batch starts
// when the computation on the previous one has finished.
//
// The content of an epoch depends only on the seed, the number of the epoch, the number of samples, the
// sampler and the shards. The order is the same on every platform, and a batch has the same bits for any
// `prefetch`, number of threads and device.
//
// A program may leave the loop at any place, by break, return or an exception, and may destroy the loader
// before the batches: operations own the data that they use. Every begin() starts a new epoch, so two loops
// may run at once, each in its own epoch.
//
// Errors: if a sample or its transform fails, waiting for the batch's arrays throws. If the error is found
// when the batch is pushed, the step to that batch throws, never an earlier one; the next step takes the
// batch after it. Samples that a data set leaves out (BadSamples::skip) are missing in the batch and in
// Batch::indices(); a batch of which no sample is left is passed over.
//
// Thread-safety: one thread at a time may use a loader and its iterators; any thread may use batches. A loop
// runs on the engine of its thread (EngineScope). A loader that was moved from may only be assigned to and
// destroyed; other calls throw InvalidState.
#pragma once

#include <cstdint>
#include <iterator>
#include <memory>
#include <source_location>

#include "engine/device/context.h"
#include "nn/data/batch_iterator.h"
#include "nn/data/batch_transform.h"
#include "nn/data/dataset.h"
#include "nn/data/sampler.h"
#include "nn/data/transform.h"

namespace mx::data {

struct LoaderOptions {
  IntArg batch_size = 1;
  bool shuffle = false;    ///< another order in each epoch
  bool drop_last = false;  ///< drop the last batch if it is not full
  IntArg seed = 0;         ///< of the order and of random transforms
  IntArg prefetch = 2;     ///< number of batches that are loaded during the computation on one
  /// The part of each epoch that this loader takes: all parts have the same size and together cover every
  /// sample (epoch_order.h).
  IntArg shard = 0, shards = 1;
  /// The part of each batch that this loader takes, cut as nn::split_batch() cuts. The workers of a job use
  /// loaders that differ in `part` only: together they take the batches of one loader without parts.
  IntArg part = 0, parts = 1;
  /// The device to which batches are copied after their transform. For a GPU, host memory is page-locked
  /// automatically: see docs/data.md.
  Context context = cpu();
  Transform transform{};                     ///< applied to the data set's first array
  BatchTransform batch_transform = nullptr;  ///< applied to all arrays, after `transform`
  /// Replaces `shuffle`: another order, or a choice of the samples (sampler.h).
  SamplerHandle sampler = nullptr;
  /// Replaces `sampler`, `shuffle`, `batch_size` and `drop_last`: batches of different sizes. A shard takes
  /// whole batches.
  BatchSamplerHandle batches = nullptr;
};

/// The position of a loader in its epochs: plain numbers, which a program saves with the model.
struct LoaderState {
  int64_t epoch = 0;
  int64_t position = 0;  ///< number of batches of the epoch that the program has received
  // restore() requires these to be equal to the loader's.
  int64_t seed = 0, samples = 0, batch_size = 0, shard = 0, shards = 0;
  bool shuffle = false, drop_last = false;

  friend bool operator==(const LoaderState&, const LoaderState&) = default;
};

class Loader {
 public:
  using Iterator = BatchIterator;

  /// Throws InvalidArgument for an empty data set, invalid options or a device that does not exist, and if
  /// drop_last would leave no batch.
  Loader(DatasetHandle dataset, LoaderOptions options = {},
         std::source_location where = std::source_location::current());
  Loader(Loader&&) noexcept;
  Loader& operator=(Loader&&) noexcept;
  ~Loader();

  /// Starts the next epoch; after restore(), continues at the restored position. Errors of the operations
  /// that read samples name the line of this call, which is that of a `for` over the loader.
  Iterator begin(std::source_location where = std::source_location::current());
  std::default_sentinel_t end() const { return {}; }

  /// The numbers of batches and of samples in each epoch of this shard, of all parts together. Samples that
  /// drop_last leaves out do not count. With a sampler of batches, samples() is the number in the first
  /// epoch.
  int64_t batches() const;
  int64_t samples() const;
  const LoaderOptions& options() const;

  /// Returns the position after the last batch that the most recent loop received. A state taken at the end
  /// of a loop's body continues with the next batch. A state taken after a loop was left continues with the
  /// batch after the last one, although begin() would start a new epoch.
  LoaderState state() const;
  /// Makes the next begin() continue at `state`, with the same batches as the loader that returned it. Throws
  /// InvalidArgument for the state of a loader with other samples, batches, shards or seed, and for the epoch
  /// 2^63 - 1, after which no other can be counted. Samplers must be the same; only their sizes are checked.
  void restore(const LoaderState& state);

 private:
  struct Core;
  struct Progress;
  class Run;

  const Core& core() const;

  std::shared_ptr<const Core> core_;
  std::shared_ptr<Progress> progress_;  // of the most recent loop
  int64_t next_epoch_ = 0, next_position_ = 0;
};

}  // namespace mx::data
