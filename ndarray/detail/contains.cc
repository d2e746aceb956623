#include "ndarray/detail/contains.h"

#include <algorithm>
#include <array>
#include <ranges>
#include <span>

namespace mx::detail {
namespace {

/// The places of an array's elements: `first` plus multiples of strides, which are positive and ascend.
class Places {
 public:
  struct Dimension {
    int64_t stride, size;
    int64_t last() const { return (size - 1) * stride; }
  };

  explicit Places(const ArrayImpl& array) : first_(array.offset) {
    for (int i = 0; i < array.shape.rank(); ++i) {
      const Dimension next{array.strides[i], array.shape[i]};
      if (next.size == 1 || next.stride == 0) continue;
      if (next.stride < 0) first_ += next.last();
      dimensions_[count_++] = {next.stride < 0 ? -next.stride : next.stride, next.size};
    }
    std::ranges::sort(dimensions(), {}, &Dimension::stride);
  }
  int64_t first() const { return first_; }
  std::span<Dimension> dimensions() { return std::span(dimensions_).first(count_); }

  /// Joins dimensions that have no gap between them. Returns false if elements share memory.
  bool join() {
    size_t joined = 0;
    int64_t reach = 0;
    for (size_t i = 0; i < count_; ++i) {
      const Dimension next = dimensions_[i];
      if (next.stride <= reach) return false;
      reach += next.last();
      if (joined > 0) {
        Dimension& before = dimensions_[joined - 1];
        if (before.stride * before.size == next.stride) {
          before.size *= next.size;
          continue;
        }
      }
      dimensions_[joined++] = next;
    }
    count_ = joined;
    return true;
  }

 private:
  int64_t first_;
  size_t count_ = 0;
  std::array<Dimension, kMaxRank> dimensions_{};
};

}  // namespace

bool contains(const ArrayImpl& array, const ArrayImpl& view) {
  if (view.shape.numel() == 0) return true;
  if (array.shape.numel() == 0) return false;
  Places places(array), shown(view);
  if (!places.join()) return false;
  const std::span<Places::Dimension> dimensions = places.dimensions();
  // The index of the view's last element along each dimension of the array. Starts with that of its first.
  std::array<int64_t, kMaxRank> last{};
  int64_t rest = shown.first() - places.first();
  if (rest < 0) return false;
  for (size_t i = dimensions.size(); i-- > 0;) {
    last[i] = std::min(rest / dimensions[i].stride, dimensions[i].size - 1);
    rest -= last[i] * dimensions[i].stride;
  }
  if (rest != 0) return false;
  for (const Places::Dimension& next : shown.dimensions()) {
    size_t i = dimensions.size();
    while (i > 0 && (dimensions[i - 1].stride > next.stride || next.stride % dimensions[i - 1].stride != 0))
      --i;
    if (i == 0) return false;
    last[i - 1] += next.last() / dimensions[i - 1].stride;
    if (last[i - 1] >= dimensions[i - 1].size) return false;
  }
  return true;
}

}  // namespace mx::detail
