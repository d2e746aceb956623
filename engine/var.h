// Var: a handle of a variable, which operations read and write. VarList: the variables of one access list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

namespace mx {

namespace detail {
struct VarBlock;
}

/// A handle of a variable: copies refer to the same variable. The handle carries a generation, so that a use
/// after delete_var() is recognised and throws InvalidHandle. A plain value that any thread may copy.
struct Var {
  detail::VarBlock* block = nullptr;
  uint32_t generation = 0;
  uint32_t engine = 0;

  explicit operator bool() const { return block != nullptr; }
  friend bool operator==(const Var&, const Var&) = default;
};

/// The variables of one access list. A VarList made from a braced list owns copies; up to four need no heap
/// memory. A VarList made from a container refers to the container, which must live until the call returns.
class VarList {
 public:
  VarList() : data_(nullptr), size_(0) {}
  VarList(std::initializer_list<Var> vars) { own(vars.begin(), vars.size()); }
  VarList(std::span<const Var> vars) : data_(vars.data()), size_(vars.size()) {}
  VarList(const std::vector<Var>& vars) : data_(vars.data()), size_(vars.size()) {}
  VarList(const VarList& other) { copy(other); }
  VarList& operator=(const VarList& other) {
    if (this != &other) {
      release();
      copy(other);
    }
    return *this;
  }
  ~VarList() { release(); }

  const Var* begin() const { return data_; }
  const Var* end() const { return data_ + size_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

 private:
  static constexpr size_t kInline = 4;

  bool owns() const { return size_ > 0 && (data_ == inline_ || owns_heap_); }
  void own(const Var* vars, size_t size) {
    Var* copies = inline_;
    if (size > kInline) [[unlikely]] {
      copies = new Var[size];
      owns_heap_ = true;
    }
    for (size_t i = 0; i < size; ++i) copies[i] = vars[i];
    data_ = copies;
    size_ = size;
  }
  void copy(const VarList& other) {
    if (other.owns()) return own(other.data_, other.size_);
    data_ = other.data_;
    size_ = other.size_;
  }
  void release() {
    if (owns_heap_) [[unlikely]] {
      delete[] data_;
      owns_heap_ = false;
    }
  }

  const Var* data_;
  size_t size_;
  bool owns_heap_ = false;
  union {
    Var inline_[kInline];  // uninitialised until used: most lists are empty, and a push makes three
  };
};

}  // namespace mx
