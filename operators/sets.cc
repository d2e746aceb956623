#include "operators/sets.h"

#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/indexing.h"
#include "operators/shape_ops.h"
#include "operators/sorting.h"

namespace mx {
namespace {

/// Returns the type in which two sets are compared. An integer and a floating-point type give f64, because
/// f32 does not represent all values of i32 and i64.
DType element_type_of_both(DType a, DType b) {
  return a != b && is_floating(a) != is_floating(b) ? f64 : promote(a, b);
}

/// The distinct elements of two arrays, as vectors of one type.
struct TwoSets {
  NDArray a, b;

  TwoSets(const Arg& x, const NDArray& y) {
    const DType type = element_type_of_both(x.array.dtype(), y.dtype());
    a = unique({x.array.to(type, x.where), x.where}).values;
    b = unique({y.to(type, x.where), x.where}).values;
  }
};

NDArray only_in(const NDArray& a, const NDArray& b) { return masked_select(a, isin(a, b, true)); }

}  // namespace

NDArray isin(const Arg& x, const NDArray& test, bool invert) {
  const Shape& shape = x.array.shape();
  if (test.numel() == 0) return full(shape, invert, bool_, x.array.context(), x.where);
  const DType type = element_type_of_both(x.array.dtype(), test.dtype());
  const NDArray values = x.array.to(type, x.where);
  const NDArray sorted = sort({test.to(type, x.where).reshape({test.numel()}, x.where), x.where});
  const NDArray place = minimum({searchsorted({sorted, x.where}, values), x.where}, test.numel() - 1);
  const NDArray nearest = take({sorted, x.where}, place);
  return invert ? not_equal({nearest, x.where}, values) : equal({nearest, x.where}, values);
}

NDArray union1d(const Arg& a, const NDArray& b) {
  const TwoSets sets(a, b);
  return unique({concat({sets.a, sets.b}, 0, a.where), a.where}).values;
}

NDArray intersect1d(const Arg& a, const NDArray& b) {
  const TwoSets sets(a, b);
  return masked_select({sets.a, a.where}, isin({sets.a, a.where}, sets.b));
}

NDArray setdiff1d(const Arg& a, const NDArray& b) {
  return only_in(unique(a).values, b);  // of a's type
}

NDArray setxor1d(const Arg& a, const NDArray& b) {
  const TwoSets sets(a, b);
  const NDArray parts[] = {only_in(sets.a, sets.b), only_in(sets.b, sets.a)};
  return sort({concat(parts, 0, a.where), a.where});
}

}  // namespace mx
