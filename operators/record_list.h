// RecordList: a short list in an operator's record. Internal.
//
// A std::vector at namespace scope is filled by code that runs before main, in an unspecified order between
// files. A RecordList of constants is filled by the compiler. So the records are complete when the
// constructor of a program's static object, a module for example, calls the first operator.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <vector>

namespace mx::detail {

[[noreturn]] void throw_record_list_full(size_t capacity);

template <class T, size_t kCapacity>
class RecordList {
 public:
  constexpr RecordList() = default;
  constexpr RecordList(std::initializer_list<T> items) : RecordList(items.begin(), items.end()) {}
  constexpr RecordList(const T* first, const T* last) {
    for (; first != last; ++first) push_back(*first);
  }

  /// Throws InvalidArgument for a list that is full.
  constexpr void push_back(T item) {
    if (size_ == kCapacity) throw_record_list_full(kCapacity);
    items_[size_++] = item;
  }

  constexpr const T* begin() const { return items_; }
  constexpr const T* end() const { return items_ + size_; }
  constexpr const T& back() const { return items_[size_ - 1]; }
  constexpr const T& operator[](size_t i) const { return items_[i]; }
  constexpr size_t size() const { return size_; }
  constexpr bool empty() const { return size_ == 0; }
  operator std::vector<T>() const { return {begin(), end()}; }

 private:
  T items_[kCapacity]{};
  size_t size_ = 0;
};

}  // namespace mx::detail
