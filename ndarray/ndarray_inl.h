// The templates of ndarray.h.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <ranges>
#include <source_location>
#include <type_traits>
#include <vector>

#include "engine/base/error.h"
#include "ndarray/detail/place.h"

namespace mx {

// The template parameter is E, because NDArray has a member T.

template <class E>
E NDArray::item(std::source_location where) const {
  E value{};
  read_item(&value, dtype_of<E>, where);
  return value;
}

template <class E>
std::vector<E> NDArray::to_vector() const {
  const auto n = static_cast<size_t>(numel());
  if constexpr (std::is_same_v<E, bool>) {
    std::vector<uint8_t> bytes(n);
    read(bytes.data(), bool_, "to_vector");
    return std::vector<bool>(bytes.begin(), bytes.end());
  } else {
    std::vector<E> values(n);
    read(values.data(), dtype_of<E>, "to_vector");
    return values;
  }
}

template <class E>
const E* NDArray::data() const {
  return static_cast<const E*>(host_data(dtype_of<E>, false));
}

template <class E>
E* NDArray::mutable_data() {
  return static_cast<E*>(host_data(dtype_of<E>, true));
}

template <detail::IndexNumber E>
View NDArray::operator[](E i) const {
  if constexpr (detail::IntegerNumber<E>) {
    return entry(detail::int64_of(i));
  } else {
    return entry(static_cast<int64_t>(i));
  }
}

template <class E>
requires(std::same_as<E, Slice> || std::same_as<E, Ellipsis> ||
         std::same_as<E, NewAxis>) View NDArray::operator[](const E& entry) const {
  return (*this)[{Index(entry, std::source_location())}];
}

template <class R>
requires detail::NestedRange<R> NDArray array(const R& values, Context context, std::source_location where) {
  using Number = typename detail::Nested<R>::Number;
  if constexpr (detail::PlainRange<R>) {
    return from_data(std::ranges::data(values), {std::ranges::size(values)}, context, where);
  } else {
    const auto flatten = [&] {
      try {
        return detail::Flattened<Number>(values);
      } catch (const Error&) {
        detail::rethrow_at(where);
      }
    };
    const detail::Flattened<Number> flat = flatten();
    return detail::from_host(flat.elements().data(), detail::kHostDType<Number>, flat.shape(), context,
                             where);
  }
}

template <class R>
requires detail::NestedRange<R> NDArray array(const R& values, const Shape& shape, Context context,
                                              std::source_location where) {
  const NDArray made = array(values, context, where);
  detail::check_array_shape(shape, made.numel(), where);
  return made.reshape(shape, where);
}

template <class T>
requires detail::HostNumber<T> NDArray array(const std::vector<T>& values, Context context,
                                             std::source_location where) {
  return array<std::vector<T>>(values, context, where);
}

template <class T>
NDArray array(std::initializer_list<std::initializer_list<T>> rows, std::source_location where) {
  return array<std::initializer_list<std::initializer_list<T>>>(rows, cpu(), where);
}

template <class T>
NDArray array(std::initializer_list<std::initializer_list<std::initializer_list<T>>> planes,
              std::source_location where) {
  return array<std::initializer_list<std::initializer_list<std::initializer_list<T>>>>(planes, cpu(), where);
}

}  // namespace mx
