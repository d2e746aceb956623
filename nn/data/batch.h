// Batch: the element type of a loader's loop.
//
//   for (auto& [images, labels] : loader) ...
//   for (data::Batch& batch : loader) use(batch[2], batch.indices());
//
// Its arrays are handles: the program may keep, change and assign them. Their values may still be in flight.
// A batch that was moved from throws InvalidState. Thread-safety: that of NDArray.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/ndarray.h"

namespace mx::data {

class Batch {
 public:
  Batch() : Batch({}, {}, 0, 0) {}
  Batch(std::vector<NDArray> arrays, NDArray indices, int64_t epoch, int64_t number)
      : fields_(arrays.size()),
        arrays_(std::move(arrays)),
        indices_(std::move(indices)),
        epoch_(epoch),
        number_(number) {
    if (arrays_.size() < 2) arrays_.resize(2);  // so that structured bindings of two names always work
  }

  /// The data set's first two arrays; labels() is an empty handle if the data set has only one.
  NDArray& images() { return get<0>(); }
  const NDArray& images() const { return get<0>(); }
  NDArray& labels() { return get<1>(); }
  const NDArray& labels() const { return get<1>(); }

  /// Returns the number of arrays.
  size_t fields() const { return fields_; }
  /// Throws InvalidArgument unless field < fields().
  NDArray& operator[](size_t field) {
    check(field);
    return arrays_[field];
  }
  const NDArray& operator[](size_t field) const {
    check(field);
    return arrays_[field];
  }

  /// Returns the samples' numbers in the data set: i64 (n,) on the CPU.
  const NDArray& indices() const { return indices_; }
  /// Returns the number of samples.
  int64_t size() const { return indices_.defined() ? indices_.size(0) : 0; }
  /// The number of the epoch, and the number of the batch in it; both count from 0.
  int64_t epoch() const { return epoch_; }
  int64_t number() const { return number_; }

  /// For structured bindings.
  template <size_t I>
  NDArray& get() & {
    check_whole();
    return arrays_[I];
  }
  template <size_t I>
  const NDArray& get() const& {
    check_whole();
    return arrays_[I];
  }
  template <size_t I>
  NDArray&& get() && {
    check_whole();
    return std::move(arrays_[I]);
  }

 private:
  void check_whole() const {
    MX_CHECK(!arrays_.empty(), InvalidState, "[Batch] expected a batch, got one that was moved from");
  }
  void check(size_t field) const {
    check_whole();
    MX_CHECK(field < fields_, InvalidArgument, "[Batch] expected a field index below ", fields_, ", got ",
             field);
  }

  size_t fields_;
  std::vector<NDArray> arrays_;
  NDArray indices_;
  int64_t epoch_, number_;
};

}  // namespace mx::data

template <>
struct std::tuple_size<mx::data::Batch> : std::integral_constant<size_t, 2> {};
template <size_t I>
struct std::tuple_element<I, mx::data::Batch> {
  using type = mx::NDArray;
};
