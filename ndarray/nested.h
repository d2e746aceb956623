// The arguments of array(): ranges of numbers, ranges of such ranges, and so on, flattened to one list of
// elements. Internal.
#pragma once

#include <concepts>
#include <cstdint>
#include <ranges>
#include <type_traits>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/dtype.h"
#include "ndarray/scalar.h"
#include "ndarray/shape.h"

namespace mx::detail {

template <class T>
concept HasDType = requires {
  DTypeOf<std::remove_cv_t<T>>::value;
};

/// Integer types that arrays do not have. They become the next wider type that arrays have: int16_t and
/// uint16_t become i32, the other unsigned types become i64.
template <class T>
concept WidenedNumber =
    !HasDType<T> && (std::same_as<T, short> || std::same_as<T, unsigned short> || std::same_as<T, unsigned> ||
                     std::same_as<T, unsigned long> || std::same_as<T, unsigned long long>);

template <class T>
concept HostNumber = HasDType<T> || WidenedNumber<T>;

/// The type in which elements of T are stored. Not bool, because std::vector<bool> is not an array of bools.
template <class T>
using HostElement = std::conditional_t<
    std::is_same_v<T, bool>, uint8_t,
    std::conditional_t<!WidenedNumber<T>, T, std::conditional_t<(sizeof(T) < 4), int32_t, int64_t>>>;

template <class T>
inline constexpr DType kHostDType = std::is_same_v<T, bool> ? bool_ : dtype_of<HostElement<T>>;

/// The type of the numbers in nested ranges, and the depth of the nesting.
template <class R>
struct Nested {
  using Number = R;
  static constexpr int kDepth = 0;
};
template <class R>
requires std::ranges::sized_range<const R>
struct Nested<R> {
  using Inner = Nested<std::remove_cvref_t<std::ranges::range_value_t<const R>>>;
  using Number = typename Inner::Number;
  static constexpr int kDepth = Inner::kDepth + 1;
};

/// A range of numbers, or of ranges of numbers.
template <class R>
concept NestedRange = Nested<R>::kDepth >
0 && HostNumber<typename Nested<R>::Number>;

/// A range of numbers whose memory can be copied as it is.
template <class R>
concept PlainRange =
    Nested<R>::kDepth == 1 && std::ranges::contiguous_range<const R>&& HasDType<typename Nested<R>::Number>;

/// The elements of nested ranges in row-major order. Throws InvalidArgument for ranges that differ in size.
template <class Number>
class Flattened {
 public:
  template <class R>
  explicit Flattened(const R& range) {
    add(range, 0);
    shape_.resize(Nested<R>::kDepth, 0);  // levels below an empty range have size 0
  }
  const Shape& shape() const { return shape_; }
  const std::vector<HostElement<Number>>& elements() const { return elements_; }

 private:
  template <class R>
  void add(const R& range, int level) {
    const auto n = static_cast<int64_t>(std::ranges::size(range));
    if (level == shape_.rank()) shape_.push_back(n);
    MX_CHECK(shape_[level] == n, InvalidArgument,
             "[array] expected nested lists of equal length, got lengths ", shape_[level], " and ", n);
    for (const auto& entry : range) {
      if constexpr (Nested<R>::kDepth == 1) {
        if constexpr (WidenedNumber<Number>) {
          MX_CHECK(Scalar(entry).fits(), InvalidArgument, "[array] expected numbers below 2^63, got ", entry);
        }
        elements_.push_back(static_cast<HostElement<Number>>(entry));
      } else {
        add(entry, level + 1);
      }
    }
  }

  Shape shape_;
  std::vector<HostElement<Number>> elements_;
};

}  // namespace mx::detail
