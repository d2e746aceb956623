// Streams: data sets of which only the next sample can be read, and their loader. For files without an index,
// for data that is generated without end, and for sources over a network.
//
//   data::StreamLoader loader(data::text_lines("corpus.txt"),
//                             {.batch_size = 32, .shuffle_buffer = 10000, .transform = tokenise,
//                              .collate = data::pad()});
//   for (data::Batch& batch : loader) step(batch["text"]);
//
// Reading runs ahead of the program, on the CPU's lane for copies, so that a blocking read holds no thread
// that computes. Transforms and collate functions run on threads that compute. The step of a loop to a batch
// waits until it has been read; so a loop must not run inside an operation. At most `prefetch` + 1 batches
// are in memory, besides those that the program keeps.
//
// The content of an epoch depends only on the data, the seed, the number of the epoch and the shards, not on
// threads or `prefetch`. Thread-safety: one thread at a time may use a loader and its iterators.
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "engine/device/context.h"
#include "nn/data/batch_iterator.h"
#include "nn/data/batch_transform.h"
#include "nn/data/collate.h"
#include "nn/data/sample_dataset.h"
#include "nn/data/sample_source.h"

namespace mx::data {

/// One pass over the data. One call at a time, from any thread.
class SampleStream {
 public:
  virtual ~SampleStream() = default;
  /// Sets the next sample, or returns false at the end. May block. After a FormatError, the next call returns
  /// the sample behind the damaged one; any other error ends the epoch.
  virtual bool next(Sample& sample) = 0;
};

/// A data set without a size. Immutable: any thread may use it.
class IterableDataset {
 public:
  virtual ~IterableDataset() = default;
  virtual std::vector<std::string> names() const { return {}; }
  virtual std::unique_ptr<SampleStream> open(int64_t epoch) const = 0;
};
using IterableHandle = std::shared_ptr<const IterableDataset>;

/// The stream of a function that returns false at the end; `open` makes it for each epoch.
IterableHandle iterable(std::function<std::function<bool(Sample& sample)>(int64_t epoch)> open,
                        std::vector<std::string> names = {});
/// The lines of a text file, without their ends: "text", u8 (bytes,), and "offset", i64 (). Throws FileError
/// when it is opened.
IterableHandle text_lines(const std::string& path);

struct StreamOptions {
  IntArg batch_size = 1;
  bool drop_last = false;  ///< drop the last batch if it is not full
  IntArg prefetch = 2;     ///< number of batches that are read during the computation on one
  /// Samples are drawn at random from so many that have been read; 0: in their order.
  IntArg shuffle_buffer = 0;
  IntArg seed = 0;               ///< of the shuffling and of random transforms
  IntArg shard = 0, shards = 1;  ///< the loader takes samples shard, shard + shards, ... of the stream
  SampleTransform transform = nullptr;
  Collate collate = stack();
  BatchTransform batch_transform = nullptr;
  BadSamples bad = BadSamples::fail;
  OnSkip on_skip = log_skipped;
  Context context = cpu();
};

/// The position of a loader: plain numbers, which a program saves with the model.
struct StreamState {
  int64_t epoch = 0;
  int64_t position = 0;  ///< number of batches of the epoch that the program has received
  friend bool operator==(const StreamState&, const StreamState&) = default;
};

/// The iterators' Batch::indices() are the places of the samples in the stream, before it was divided into
/// shards. An error of a sample or a transform is thrown by the step to its batch; an error of the stream
/// itself ends the epoch.
class StreamLoader {
 public:
  using Iterator = BatchIterator;

  /// Throws InvalidArgument for invalid options.
  StreamLoader(IterableHandle dataset, StreamOptions options = {},
               std::source_location where = std::source_location::current());

  /// Starts the next epoch; after restore(), continues at the restored position. Errors of the library name
  /// the line of the loop (`where`).
  Iterator begin(std::source_location where = std::source_location::current());
  std::default_sentinel_t end() const { return {}; }
  /// Returns the position after the last batch that the most recent loop received.
  StreamState state() const;
  /// Makes the next begin() continue there, for a loader with the same data and options. The samples before
  /// are read and dropped, and so are errors of damaged ones.
  void restore(const StreamState& state);

 private:
  struct Core;
  class Run;

  std::shared_ptr<const Core> core_;
  std::shared_ptr<Run> run_;  // the most recent loop
  StreamState next_;
};

}  // namespace mx::data
