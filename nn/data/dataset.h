// Data sets: numbered samples that come in batches of arrays.
//
//   data::ArrayDataset train({images, labels});
//   std::vector<data::Subset> parts = data::random_split(train, {50000, 10000}, /*seed=*/1);
//
// A batch is gathered by operations of the engine, so asking for one returns at once, and what is wrong with
// a sample comes out of waiting for the batch. A loader (loader.h) chooses the samples.
//
// Data sets are not changed after they have been made: any thread may use one, and what they are made of is
// shared by copies.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "ndarray/ndarray.h"
#include "ndarray/tensor.h"

namespace mx::data {

class Dataset {
 public:
  virtual ~Dataset() = default;

  virtual int64_t size() const = 0;

  /// The samples at `indices`, i64 (n,) on the CPU, each from 0 to size() - 1 (others fail the arrays):
  /// arrays whose first dimension is n, as many and of the same types and other dimensions each time. Pushes
  /// operations and returns at once; the values of `indices` may not be there yet, so it must not wait for
  /// them.
  virtual std::vector<NDArray> gather(const NDArray& indices) const = 0;
};

/// A data set as an argument: one that is shared, or a value, which is moved to where it can be.
class DatasetHandle : public std::shared_ptr<const Dataset> {
 public:
  template <std::derived_from<Dataset> D>
  DatasetHandle(D dataset) : shared_ptr(std::make_shared<const D>(std::move(dataset))) {}
  template <std::derived_from<Dataset> D>
  DatasetHandle(std::shared_ptr<D> dataset) : shared_ptr(std::move(dataset)) {}
  template <std::derived_from<Dataset> D>
  DatasetHandle(std::shared_ptr<const D> dataset) : shared_ptr(std::move(dataset)) {}
};

/// Sample i is entry i of each array.
class ArrayDataset final : public Dataset {
 public:
  /// Arrays with the same first dimension, of any types, on any devices; a batch is where they are. Throws
  /// InvalidArgument where sizes differ and when there is no array.
  explicit ArrayDataset(std::vector<NDArray> arrays);
  // Moving copies handles, so that a data set that was moved from is still one.
  ArrayDataset(const ArrayDataset&) = default;
  ArrayDataset& operator=(const ArrayDataset&) = default;

  int64_t size() const override { return arrays_[0].size(0); }
  std::vector<NDArray> gather(const NDArray& indices) const override;

  size_t fields() const { return arrays_.size(); }
  /// Throws InvalidArgument beyond fields().
  const NDArray& array(size_t field) const;

 private:
  std::vector<NDArray> arrays_;
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
  /// Sets every element of one sample: a tensor per field, of its shape and type, contiguous. Called in the
  /// engine, from several threads at once for different samples; what it throws fails the batch.
  using Read = std::function<void(int64_t index, std::span<const Tensor> sample)>;

  /// Throws InvalidArgument without fields or function, and for a negative size.
  FunctionDataset(int64_t size, std::vector<Field> fields, Read read);
  FunctionDataset(const FunctionDataset&) = default;
  FunctionDataset& operator=(const FunctionDataset&) = default;

  int64_t size() const override { return size_; }
  std::vector<NDArray> gather(const NDArray& indices) const override;

 private:
  struct Source;
  int64_t size_;
  std::shared_ptr<const Source> source_;
};

/// Some samples of another data set, in an order of their own.
class Subset final : public Dataset {
 public:
  /// Throws InvalidArgument for an index that the base does not have.
  Subset(DatasetHandle base, std::vector<int64_t> indices);
  Subset(const Subset&) = default;
  Subset& operator=(const Subset&) = default;

  int64_t size() const override { return static_cast<int64_t>(indices_->size()); }
  std::vector<NDArray> gather(const NDArray& indices) const override;

  /// Which samples of the base these are.
  const std::vector<int64_t>& indices() const { return *indices_; }

 private:
  DatasetHandle base_;
  std::shared_ptr<const std::vector<int64_t>> indices_;
  NDArray map_;  // the same as an array
};

/// Parts of these sizes, which must add up to the data set's (InvalidArgument); every sample is in exactly
/// one. Which one depends on the seed and the sizes alone, on every platform.
std::vector<Subset> random_split(const DatasetHandle& dataset, const std::vector<int64_t>& sizes,
                                 int64_t seed);

}  // namespace mx::data
