// Shape: the sizes of an array's dimensions; also used for strides, axes and other short lists of int64.
//
// A plain value that holds up to kMaxRank numbers inline, so it is made, copied and compared without an
// allocation.
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "ndarray/scalar.h"

namespace mx {

/// The most dimensions that an array may have.
inline constexpr int kMaxRank = 12;

/// A number in a braced shape, of any integer type: zeros({v.size(), 3}). A number that an int64_t cannot
/// hold becomes INT64_MAX, which is too large or out of range wherever it is used; it never becomes negative.
struct Extent {
  int64_t value;

  template <detail::IntegerNumber T>
  constexpr Extent(T v) : value(detail::int64_of(v)) {}
  constexpr Extent(IntArg v) : value(v) {}
};

class Shape {
 public:
  Shape() : rank_(0) {}
  Shape(std::initializer_list<Extent> dims)
      : Shape(dims.size() == 0 ? nullptr : &dims.begin()->value, dims.size()) {
    static_assert(sizeof(Extent) == sizeof(int64_t));
  }
  Shape(std::span<const int64_t> dims) : Shape(dims.data(), dims.size()) {}
  Shape(const std::vector<int64_t>& dims) : Shape(dims.data(), dims.size()) {}
  Shape(const Shape& other) : rank_(other.rank_) { copy(other); }
  Shape& operator=(const Shape& other) {
    rank_ = other.rank_;
    copy(other);
    return *this;
  }
  /// Returns `rank` times the same number. Throws InvalidArgument beyond kMaxRank.
  static Shape filled(int rank, int64_t value);

  int rank() const { return rank_; }
  size_t size() const { return static_cast<size_t>(rank_); }
  bool empty() const { return rank_ == 0; }

  /// Returns entry i; a negative i counts from the end. Throws InvalidArgument for i < -rank(). Precondition,
  /// not checked: i < rank().
  int64_t operator[](int i) const { return dims_[i < 0 ? from_end(i) : i]; }
  int64_t& operator[](int i) { return dims_[i < 0 ? from_end(i) : i]; }
  int64_t back() const { return dims_[rank_ - 1]; }

  const int64_t* data() const { return dims_; }
  const int64_t* begin() const { return dims_; }
  const int64_t* end() const { return dims_ + rank_; }
  int64_t* begin() { return dims_; }
  int64_t* end() { return dims_ + rank_; }

  /// Throws InvalidArgument beyond kMaxRank.
  void push_back(int64_t value);
  void insert(int position, int64_t value);
  void erase(int position);
  void resize(int rank, int64_t value = 0);

  /// Returns the product of the sizes; 1 for rank 0. It does not overflow for the shape of an existing array;
  /// for other shapes see checked_numel().
  int64_t numel() const {
    int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= dims_[i];
    return n;
  }

  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.rank_ != b.rank_) return false;
    for (int i = 0; i < a.rank_; ++i)
      if (a.dims_[i] != b.dims_[i]) return false;
    return true;
  }

 private:
  Shape(const int64_t* dims, size_t rank);
  int from_end(int i) const;
  void copy(const Shape& other) {
    std::memcpy(dims_, other.dims_, 4 * sizeof(int64_t));  // a constant size: two instructions, no call
    for (int i = 4; i < rank_; ++i) dims_[i] = other.dims_[i];
  }

  int32_t rank_;
  int64_t dims_[kMaxRank];  // the values beyond rank_ are unspecified
};

/// Distances in elements, one per dimension: 0 if the dimension is broadcast, negative if it is flipped.
using Strides = Shape;

/// "(2, 3)", "(4,)", "()", as NumPy writes them.
std::string to_string(const Shape& shape);
std::ostream& operator<<(std::ostream& out, const Shape& shape);

/// Returns the number of elements. Throws InvalidArgument, whose message begins with "[op]", for a negative
/// size, and if the elements, of `element_bytes` each, have 2^63 bytes or more.
int64_t checked_numel(const Shape& shape, size_t element_bytes, const char* op);

/// Returns the strides of row-major order.
Strides contiguous_strides(const Shape& shape);
/// Returns the distance from the first element to the one with this row-major index, in elements.
int64_t place_of(int64_t index, const Shape& shape, const Strides& strides);

/// Returns the axis counted from the front. Throws InvalidArgument, naming `op`, unless it is in
/// -rank .. rank-1.
int normalize_axis(int64_t axis, int rank, const char* op);
/// Returns the normalized axes in ascending order; every axis for an empty list. Throws InvalidArgument,
/// naming `op`, for an axis out of range and for duplicates.
Shape normalize_axes(const Shape& axes, int rank, const char* op);

/// Returns the shape to which both broadcast, by NumPy's rule. Throws InvalidArgument, naming `op` and both
/// shapes, if there is none.
Shape broadcast_shapes(const Shape& a, const Shape& b, const char* op);

/// Returns the strides with which an array of `shape` and `strides` is read as one of shape `target`.
/// Precondition: `shape` broadcasts to `target`.
Strides broadcast_strides(const Shape& shape, const Strides& strides, const Shape& target);

}  // namespace mx
