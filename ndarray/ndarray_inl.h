// The templates of ndarray.h.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <type_traits>
#include <vector>

#include "engine/base/check.h"

namespace mx {

template <class T>
T NDArray::item() const {
  T value{};
  read_item(&value, dtype_of<T>);
  return value;
}

template <class T>
std::vector<T> NDArray::to_vector() const {
  const auto n = static_cast<size_t>(numel());
  if constexpr (std::is_same_v<T, bool>) {
    std::vector<uint8_t> bytes(n);
    read(bytes.data(), bool_, "to_vector");
    return std::vector<bool>(bytes.begin(), bytes.end());
  } else {
    std::vector<T> values(n);
    read(values.data(), dtype_of<T>, "to_vector");
    return values;
  }
}

template <class T>
const T* NDArray::data() const {
  return static_cast<const T*>(host_data(dtype_of<T>, false));
}

template <class T>
T* NDArray::mutable_data() {
  return static_cast<T*>(host_data(dtype_of<T>, true));
}

template <class T>
NDArray array(std::initializer_list<std::initializer_list<T>> rows) {
  std::vector<T> flat;
  const size_t columns = rows.size() > 0 ? rows.begin()->size() : 0;
  for (const auto& row : rows) {
    MX_CHECK(row.size() == columns, InvalidArgument, "[array] expected rows of the same length, got ",
             columns, " and ", row.size());
    flat.insert(flat.end(), row.begin(), row.end());
  }
  return array(flat).reshape({static_cast<int64_t>(rows.size()), static_cast<int64_t>(columns)});
}

template <class T>
NDArray array(std::initializer_list<std::initializer_list<std::initializer_list<T>>> planes) {
  std::vector<T> flat;
  const size_t rows = planes.size() > 0 ? planes.begin()->size() : 0;
  const size_t columns = rows > 0 ? planes.begin()->begin()->size() : 0;
  for (const auto& plane : planes) {
    MX_CHECK(plane.size() == rows, InvalidArgument, "[array] expected planes of the same size, got ", rows,
             " and ", plane.size(), " rows");
    for (const auto& row : plane) {
      MX_CHECK(row.size() == columns, InvalidArgument, "[array] expected rows of the same length, got ",
               columns, " and ", row.size());
      flat.insert(flat.end(), row.begin(), row.end());
    }
  }
  return array(flat).reshape(
      {static_cast<int64_t>(planes.size()), static_cast<int64_t>(rows), static_cast<int64_t>(columns)});
}

}  // namespace mx
