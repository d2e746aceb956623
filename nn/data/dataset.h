// Data sets: numbered samples, read in batches of arrays.
//
//   data::ArrayDataset train({images, labels});
//   std::vector<data::Subset> parts = data::random_split(train, {50000, 10000}, /*seed=*/1);
//
// A batch is gathered by operations of the engine. So gather() returns at once, and waiting for the batch
// throws if a sample is invalid. A loader (loader.h) chooses the samples. Data sets whose samples have
// different shapes are SampleDatasets (sample_dataset.h).
//
// Data sets are immutable: any thread may use one, and copies share their contents.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ndarray/ndarray.h"
#include "ndarray/tensor.h"
#include "nn/data/indices.h"
#include "nn/data/pending_batch.h"

namespace mx::data {

class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual int64_t size() const = 0;

  /// The names of the arrays of a batch, for batch["name"]; empty if they have none.
  virtual std::vector<std::string> names() const { return {}; }

  /// Returns the samples at `indices`, which are from 0 to size() - 1: arrays whose first dimension is the
  /// number of samples. Another index throws InvalidArgument or poisons the arrays. Pushes operations and
  /// returns at once. The sizes of the arrays may depend on indices.values(). The operations must read
  /// indices.array(), whose values may still be in flight (indices.h).
  virtual std::vector<NDArray> gather(const Indices& indices) const = 0;

  /// The same for data sets that know the shapes of a batch only when it has been read: returns at once, and
  /// the result waits. Loaders call this function.
  virtual PendingBatch start(const Indices& indices) const { return gather(indices); }
};

/// A data set as an argument: a shared pointer, or a value, which is moved into one.
class DatasetHandle : public std::shared_ptr<const Dataset> {
 public:
  template <std::derived_from<Dataset> D>
  DatasetHandle(D dataset) : shared_ptr(std::make_shared<const D>(std::move(dataset))) {}
  template <std::derived_from<Dataset> D>
  DatasetHandle(std::shared_ptr<D> dataset) : shared_ptr(std::move(dataset)) {}
  template <std::derived_from<Dataset> D>
  DatasetHandle(std::shared_ptr<const D> dataset) : shared_ptr(std::move(dataset)) {}
};

/// A data set of arrays: sample i is entry i of each array.
class ArrayDataset final : public Dataset {
 public:
  /// Takes arrays with the same first dimension, of any types, on any devices. The arrays of a batch are on
  /// the same devices. Throws InvalidArgument if the sizes differ, if there is no array, and for names that
  /// are not as many as the arrays or not different.
  explicit ArrayDataset(std::vector<NDArray> arrays, std::vector<std::string> names = {},
                        std::source_location where = std::source_location::current());
  // There is no move constructor: a move copies the handles, so a data set that was moved from stays valid.
  ArrayDataset(const ArrayDataset&) = default;
  ArrayDataset& operator=(const ArrayDataset&) = default;

  int64_t size() const override { return arrays_[0].size(0); }
  std::vector<std::string> names() const override { return names_; }
  std::vector<NDArray> gather(const Indices& indices) const override;

  size_t fields() const { return arrays_.size(); }
  /// Throws InvalidArgument unless field < fields().
  const NDArray& array(size_t field) const;

 private:
  std::vector<NDArray> arrays_;
  std::vector<std::string> names_;
};

/// Samples that a function computes or reads, given the sample's number:
///
///   data::FunctionDataset scans(100, {{.shape = {2, 3}, .dtype = f32}}, [](int64_t i, auto sample) {
///     float* const pixels = sample[0].template as<float>();   // 6 contiguous numbers
///     std::fill(pixels, pixels + 6, static_cast<float>(i));
///   });
class FunctionDataset final : public Dataset {
 public:
  /// One array of a batch, without the first dimension.
  struct Field {
    Shape shape;
    DType dtype = f32;
  };
  /// Sets every element of one sample: one contiguous tensor per field, of its shape and type. Called in the
  /// engine, from several threads at once for different samples. If it throws, the batch is poisoned with the
  /// exception.
  using Read = std::function<void(int64_t index, std::span<const Tensor> sample)>;

  /// Throws InvalidArgument if there are no fields or no function, and for a negative size.
  FunctionDataset(int64_t size, std::vector<Field> fields, Read read,
                  std::source_location where = std::source_location::current());
  FunctionDataset(const FunctionDataset&) = default;
  FunctionDataset& operator=(const FunctionDataset&) = default;

  int64_t size() const override { return size_; }
  std::vector<NDArray> gather(const Indices& indices) const override;

 private:
  struct Source;
  int64_t size_;
  std::shared_ptr<const Source> source_;
};

/// Selected samples of another data set, in a given order.
class Subset final : public Dataset {
 public:
  /// Throws InvalidArgument for an index that the base does not have.
  Subset(DatasetHandle base, std::vector<int64_t> indices,
         std::source_location where = std::source_location::current());
  Subset(const Subset&) = default;
  Subset& operator=(const Subset&) = default;

  int64_t size() const override { return static_cast<int64_t>(indices_->size()); }
  std::vector<std::string> names() const override { return base_->names(); }
  std::vector<NDArray> gather(const Indices& indices) const override;
  PendingBatch start(const Indices& indices) const override;

  /// Returns the numbers of the samples in the base.
  const std::vector<int64_t>& indices() const { return *indices_; }

 private:
  Indices in_base(const Indices& indices) const;

  DatasetHandle base_;
  std::shared_ptr<const std::vector<int64_t>> indices_;
  NDArray map_;  // indices_ as an array
};

/// Splits a data set at random into parts of these sizes; every sample is in exactly one part. The result
/// depends only on the seed and the sizes, and is the same on every platform. Throws InvalidArgument if the
/// sizes do not add up to the size of the data set.
std::vector<Subset> random_split(const DatasetHandle& dataset, const std::vector<int64_t>& sizes,
                                 int64_t seed);

}  // namespace mx::data
