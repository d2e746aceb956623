// Batch: the element type of a loader's loop.
//
//   for (auto& [x, y] : loader) ...                       // the first two fields
//   for (data::Batch& batch : loader) use(batch[2], batch["mask"], batch.indices());
//
// Its arrays are handles: the program may keep, change and assign them. Their values may still be in flight.
// A batch that was moved from throws InvalidState. Thread-safety: that of NDArray.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/ndarray.h"

namespace mx::data {

class Batch {
 public:
  Batch() : Batch({}, {}, 0, 0) {}
  Batch(std::vector<NDArray> arrays, NDArray indices, int64_t epoch, int64_t number,
        std::shared_ptr<const std::vector<std::string>> names = nullptr)
      : fields_(arrays.size()),
        arrays_(std::move(arrays)),
        names_(std::move(names)),
        indices_(std::move(indices)),
        epoch_(epoch),
        number_(number) {
    if (arrays_.size() < 2) arrays_.resize(2);  // so that structured bindings of two names always work
  }

  /// The first two fields by their usual names, batch[0] and batch[1]; labels() is an empty handle if there
  /// is only one field.
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

  /// Returns the field of that name (Dataset::names()). Throws InvalidArgument, with the names that there
  /// are.
  NDArray& operator[](std::string_view name) { return arrays_[place_of(name)]; }
  const NDArray& operator[](std::string_view name) const { return arrays_[place_of(name)]; }
  bool has(std::string_view name) const { return find(name) < fields_; }
  /// Returns the names of the fields; empty if they have none.
  const std::vector<std::string>& names() const {
    static const std::vector<std::string> none;
    return names_ == nullptr ? none : *names_;
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

  size_t find(std::string_view name) const {
    size_t place = 0;
    while (place < names().size() && names()[place] != name) ++place;
    return place < names().size() ? place : fields_;
  }
  size_t place_of(std::string_view name) const {
    check_whole();
    const size_t place = find(name);
    if (place < fields_) return place;
    std::string known;
    for (const std::string& other : names()) known += (known.empty() ? "" : ", ") + other;
    throw InvalidArgument(mx::detail::concat("[Batch] expected the name of a field (",
                                             known.empty() ? "there are none" : known, "), got '",
                                             std::string(name), "'"));
  }

  size_t fields_;
  std::vector<NDArray> arrays_;
  std::shared_ptr<const std::vector<std::string>> names_;
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
