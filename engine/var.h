// Var: the name of something that operations read and write, and VarList: a few of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

namespace mx {

namespace detail {
struct VarBlock;
}

/// A handle: copies name the same variable. Generation-tagged: a handle that outlives delete_var() is
/// recognised and every use of it throws InvalidHandle. Plain value, safe to copy from any thread.
struct Var {
  detail::VarBlock* block = nullptr;
  uint32_t generation = 0;
  uint32_t engine = 0;

  explicit operator bool() const { return block != nullptr; }
  friend bool operator==(const Var&, const Var&) = default;
};

/// The variables of one access list. Made from a braced list it owns copies (up to four without touching
/// the heap); made from a container it refers to it, and the container must live until the call returns.
class VarList {
 public:
  VarList() = default;
  VarList(std::initializer_list<Var> vars) {
    Var* out = inline_;
    if (vars.size() > kInline) {
      heap_ = std::make_unique<Var[]>(vars.size());
      out = heap_.get();
    }
    for (const Var& v : vars) out[size_++] = v;
  }
  VarList(std::span<const Var> vars) : view_(vars.data()), size_(vars.size()) {}
  VarList(const std::vector<Var>& vars) : VarList(std::span<const Var>(vars)) {}
  VarList(const VarList& other) { *this = other; }
  VarList(VarList&& other) noexcept = default;
  VarList& operator=(VarList&& other) noexcept = default;
  VarList& operator=(const VarList& other) {
    if (this == &other) return *this;
    view_ = other.view_;
    size_ = other.size_;
    if (view_ == nullptr && size_ > kInline) {
      heap_ = std::make_unique<Var[]>(size_);
    } else {
      heap_.reset();
    }
    if (view_ == nullptr) {
      Var* out = heap_ ? heap_.get() : inline_;
      for (size_t i = 0; i < size_; ++i) out[i] = other.begin()[i];
    }
    return *this;
  }

  const Var* begin() const { return view_ != nullptr ? view_ : heap_ ? heap_.get() : inline_; }
  const Var* end() const { return begin() + size_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

 private:
  static constexpr size_t kInline = 4;
  const Var* view_ = nullptr;
  std::unique_ptr<Var[]> heap_;
  size_t size_ = 0;
  Var inline_[kInline];
};

}  // namespace mx
