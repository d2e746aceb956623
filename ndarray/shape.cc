#include "ndarray/shape.h"

#include <algorithm>
#include <ostream>
#include <sstream>

#include "engine/base/check.h"

namespace mx {
namespace {

void check_rank(size_t rank) {
  MX_CHECK(rank <= static_cast<size_t>(kMaxRank), InvalidArgument, "[Shape] expected at most ", kMaxRank,
           " dimensions, got ", rank);
}

}  // namespace

Shape::Shape(const int64_t* dims, size_t rank) : rank_(static_cast<int32_t>(rank)) {
  check_rank(rank);
  std::copy_n(dims, rank, dims_);
}

Shape Shape::filled(int rank, int64_t value) {
  Shape shape;
  shape.resize(rank, value);
  return shape;
}

int Shape::from_end(int i) const {
  MX_CHECK(i >= -rank_, InvalidArgument, "[shape] expected an index from ", -rank_, " to ", rank_ - 1,
           " into the shape ", *this, ", got ", i);
  return i + rank_;
}

void Shape::push_back(int64_t value) {
  check_rank(size() + 1);
  dims_[rank_++] = value;
}

void Shape::insert(int position, int64_t value) {
  check_rank(size() + 1);
  for (int i = rank_; i > position; --i) dims_[i] = dims_[i - 1];
  dims_[position] = value;
  ++rank_;
}

void Shape::erase(int position) {
  std::copy(dims_ + position + 1, dims_ + rank_, dims_ + position);
  --rank_;
}

void Shape::resize(int rank, int64_t value) {
  check_rank(static_cast<size_t>(rank));
  for (int i = rank_; i < rank; ++i) dims_[i] = value;
  rank_ = rank;
}

std::string to_string(const Shape& shape) {
  std::ostringstream out;
  out << shape;
  return out.str();
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  out << '(';
  for (int i = 0; i < shape.rank(); ++i) out << (i > 0 ? ", " : "") << shape[i];
  return out << (shape.rank() == 1 ? ",)" : ")");
}

int64_t checked_numel(const Shape& shape, size_t element_bytes, const char* op) {
  int64_t n = 1;
  bool empty = false, overflow = false;
  for (int64_t dim : shape) {
    MX_CHECK(dim >= 0, InvalidArgument, "[", op, "] expected sizes that are not negative, got ", shape);
    empty = empty || dim == 0;
    // The other sizes must not overflow even if one size is 0, because a view may remove that dimension.
    overflow = overflow || __builtin_mul_overflow(n, std::max<int64_t>(dim, 1), &n);
  }
  int64_t bytes = 0;
  overflow = overflow || __builtin_mul_overflow(n, static_cast<int64_t>(element_bytes), &bytes);
  MX_CHECK(!overflow, InvalidArgument, "[", op, "] expected an array of fewer than 2^63 bytes, got shape ",
           shape, " of ", element_bytes, " bytes per element");
  return empty ? 0 : n;
}

Strides contiguous_strides(const Shape& shape) {
  Strides strides;
  strides.resize(shape.rank());
  int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = step;
    step *= std::max<int64_t>(shape[i], 1);
  }
  return strides;
}

int64_t place_of(int64_t index, const Shape& shape, const Strides& strides) {
  int64_t place = 0;
  for (int d = shape.rank() - 1; d >= 0; --d) {
    place += index % shape[d] * strides[d];
    index /= shape[d];
  }
  return place;
}

int normalize_axis(int64_t axis, int rank, const char* op) {
  MX_CHECK(rank > 0, InvalidArgument, "[", op,
           "] expected an array with dimensions, got one of rank 0, which has no axes, and axis ", axis);
  MX_CHECK(axis >= -rank && axis < rank, InvalidArgument, "[", op, "] expected an axis from ", -rank, " to ",
           rank - 1, " for ", rank, " dimensions, got ", axis);
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

Shape normalize_axes(const Shape& axes, int rank, const char* op) {
  Shape result;
  if (axes.empty()) {
    for (int i = 0; i < rank; ++i) result.push_back(i);
    return result;
  }
  bool seen[kMaxRank] = {};
  for (int64_t axis : axes) {
    const int i = normalize_axis(axis, rank, op);
    MX_CHECK(!seen[i], InvalidArgument, "[", op, "] expected different axes, got ", axes, " for ", rank,
             " dimensions");
    seen[i] = true;
  }
  for (int i = 0; i < rank; ++i)
    if (seen[i]) result.push_back(i);
  return result;
}

Shape broadcast_shapes(const Shape& a, const Shape& b, const char* op) {
  if (a == b) return a;
  const int rank = std::max(a.rank(), b.rank());
  Shape result = Shape::filled(rank, 1);
  for (int i = 1; i <= rank; ++i) {
    const int64_t x = i <= a.rank() ? a[a.rank() - i] : 1;
    const int64_t y = i <= b.rank() ? b[b.rank() - i] : 1;
    MX_CHECK(x == y || x == 1 || y == 1, InvalidArgument, "[", op,
             "] expected shapes that broadcast together, got ", a, " and ", b, " (sizes ", x, " and ", y,
             " in dimension ", rank - i, ")");
    result[rank - i] = x == 1 ? y : x;
  }
  return result;
}

Strides broadcast_strides(const Shape& shape, const Strides& strides, const Shape& target) {
  Strides result = Strides::filled(target.rank(), 0);
  const int shift = target.rank() - shape.rank();
  for (int i = 0; i < shape.rank(); ++i)
    if (shape[i] == target[i + shift] && shape[i] != 1) result[i + shift] = strides[i];
  return result;
}

}  // namespace mx
