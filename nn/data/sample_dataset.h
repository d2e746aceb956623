// SampleDataset: a data set of samples that are read one by one and may have different shapes.
//
//   data::SampleDataset photos(data::image_folder("photos"),
//                              {.transform = data::chain({data::random_resized_crop(64, 64),
//                                                         data::flip(0.5), data::channels_first()})});
//   data::Loader loader(photos, {.batch_size = 32, .shuffle = true});
//
// A batch goes through the engine in three steps, which a loader pushes ahead: reading, on the CPU's lane for
// copies, so that a blocking read holds no thread that computes; decoding and transforming, one sample per
// thread; collating. The shapes of a batch are known after that. So a loop over a loader waits until the
// batch it asks for has been read. gather() waits as well.
//
// The random numbers of a transform depend on the loader's seed, the epoch and the sample's number in this
// data set. They do not depend on its batch, on shards or on threads.
//
// A sample that fails: see BadSamples. Immutable: any thread may use a data set; copies share their contents.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "nn/data/collate.h"
#include "nn/data/dataset.h"
#include "nn/data/sample_source.h"

namespace mx::data {

/// The treatment of samples, or records of a file, that are damaged (FormatError) or unreadable (FileError).
enum class BadSamples {
  fail,  ///< the batch, or the function that reads the file, fails with the error of the first one
  skip,  ///< leave them out; the batch is smaller
};

/// Called with the error of each sample that is left out; the text names file and offset. May be called from
/// any thread, also at the same time.
using OnSkip = std::function<void(const std::string& error)>;
/// Logs the text as a warning.
void log_skipped(const std::string& error);

struct SampleOptions {
  SampleTransform transform = nullptr;
  Collate collate = stack();
  BadSamples bad = BadSamples::fail;
  OnSkip on_skip = log_skipped;
  /// The names of a batch's fields. Empty: those of the source; fields that the collate function adds have
  /// none.
  std::vector<std::string> names{};
};

class SampleDataset final : public Dataset {
 public:
  /// Throws InvalidArgument for an empty source or an empty collate function.
  explicit SampleDataset(SourceHandle source, SampleOptions options = {},
                         std::source_location where = std::source_location::current());
  SampleDataset(const SampleDataset&) = default;
  SampleDataset& operator=(const SampleDataset&) = default;

  int64_t size() const override;
  std::vector<std::string> names() const override;
  /// Waits until the batch has been read. Throws the error of a sample, and InvalidArgument if all are left
  /// out.
  std::vector<NDArray> gather(const Indices& indices) const override;
  PendingBatch start(const Indices& indices) const override;

 private:
  struct Core;
  std::shared_ptr<const Core> core_;
};

}  // namespace mx::data
