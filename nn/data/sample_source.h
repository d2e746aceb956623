// SampleSource: samples that are read one by one, in two steps. fetch() reads bytes and may block; decode()
// computes. A SampleDataset (sample_dataset.h) makes a data set of a source, in which blocking reads never
// hold a thread that computes.
//
// Sources are immutable: any thread may call their functions, at the same time.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "nn/data/host_array.h"
#include "nn/data/sample_random.h"

namespace mx::data {

class SampleSource {
 public:
  virtual ~SampleSource() = default;

  virtual int64_t size() const = 0;
  /// The names of the fields, for batch["name"]; empty if they have none.
  virtual std::vector<std::string> names() const { return {}; }
  /// Returns false if fetch() need not be called, because the samples are in memory.
  virtual bool reads_files() const { return true; }
  /// Returns the bytes of a sample, such as an encoded image. Throws FileError, and FormatError for a record
  /// that is damaged. The message names the file and the offset.
  virtual std::string fetch(int64_t index) const = 0;
  /// Returns the sample. Throws FormatError for bytes that are not what they should be.
  virtual Sample decode(int64_t index, const std::string& bytes) const = 0;
};

using SourceHandle = std::shared_ptr<const SampleSource>;

/// A source in memory, or computed: `make` returns sample `index`. The samples may have different shapes.
SourceHandle function_source(int64_t size, std::function<Sample(int64_t index)> make,
                             std::vector<std::string> names = {});

/// The entries of arrays in memory: sample i is entry i of each array, as in ArrayDataset, but it can be
/// transformed alone. Copies the values, and waits for them. Throws InvalidArgument as ArrayDataset does.
SourceHandle array_source(const std::vector<NDArray>& arrays, std::vector<std::string> names = {});

/// Keeps decoded samples in memory until they have `max_bytes`; these are read once. Samples that are kept
/// are never dropped: in a shuffled epoch every sample is needed equally soon.
SourceHandle cached(SourceHandle source, uint64_t max_bytes);

/// Changes a sample, with its own random numbers: all fields together, so that an image, its mask and its
/// boxes are changed in the same way.
using SampleTransform = std::function<void(Sample& sample, SampleRandom& random)>;

/// Applies transforms in order. Each has its own stream of random numbers, so that one that draws more
/// numbers does not change the ones behind it.
SampleTransform chain(std::vector<SampleTransform> transforms);

}  // namespace mx::data
