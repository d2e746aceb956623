#include "operators/kernels/sort_keys.h"

#include <hwy/targets.h>

#include <algorithm>
#include <utility>

#include "ndarray/kernels/parallel.h"

namespace mx::kernels {
namespace {

/// Up to this number, std::sort is faster than the start of a vector quicksort.
constexpr int64_t kFew = 24;
/// The least number of keys for each thread.
constexpr int64_t kLeastPiece = 65536;
constexpr int64_t kMergeGrain = 32768;

/// Highway 1.0 ends the process if it sorts keys of 128 bits without a vector instruction set.
bool sorts_with_vectors() {
  return (hwy::SupportedTargets() & ~static_cast<int64_t>(HWY_SCALAR | HWY_EMU128)) != 0;
}

template <class K>
void sort_alone(const hwy::Sorter& sorter, K* keys, int64_t n) {
  if (n <= kFew || (sizeof(K) == 16 && !sorts_with_vectors())) {
    std::sort(keys, keys + n);
  } else {
    sorter(keys, static_cast<size_t>(n), hwy::SortAscending());
  }
}

/// Returns how many of the first k keys of the merged order come from `left`.
template <class K>
int64_t split(const K* left, int64_t left_size, const K* right, int64_t right_size, int64_t k) {
  int64_t low = std::max(int64_t{0}, k - right_size), high = std::min(k, left_size);
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (left[middle] < right[k - middle - 1]) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Without branches on which key comes next, because they could not be predicted.
template <class K>
void merge(const K* left, const K* left_end, const K* right, const K* right_end, K* out) {
  while (left != left_end && right != right_end) {
    const bool from_right = *right < *left;
    *out++ = *(from_right ? right : left);
    right += from_right;
    left += !from_right;
  }
  std::copy(right, right_end, std::copy(left, left_end, out));
}

/// Merges sorted pieces of `width` keys pairwise.
template <class K>
void merge_neighbours(const Keys<K>& from, Keys<K>& to, int64_t width) {
  const int64_t n = from.n;
  // A piece of the result never spans two pairs.
  const int64_t grain = std::min(width, kMergeGrain);
  const int64_t pieces_of_a_pair = (2 * width + grain - 1) / grain;
  const int64_t pairs = (n + 2 * width - 1) / (2 * width);
  parallel_for(pairs * pieces_of_a_pair, 1, [&](int64_t first_piece, int64_t last_piece) {
    for (int64_t piece = first_piece; piece < last_piece; ++piece) {
      const int64_t first = piece / pieces_of_a_pair * (2 * width);
      const int64_t left_size = std::min(width, n - first),
                    right_size = std::min(width, n - first - left_size);
      const int64_t begin = std::min(piece % pieces_of_a_pair * grain, left_size + right_size),
                    end = std::min(begin + grain, left_size + right_size);
      const K* const left = from.data.get() + first;
      const K* const right = left + left_size;
      const int64_t a = split(left, left_size, right, right_size, begin);
      const int64_t b = split(left, left_size, right, right_size, end);
      merge(left + a, left + b, right + (begin - a), right + (end - b), to.data.get() + first + begin);
    }
  });
}

}  // namespace

template <class K>
void KeySorter::sort_first(Keys<K>& keys, int64_t count) {
  std::nth_element(keys.begin(), keys.begin() + count, keys.end());
  sort_front(keys, count);
}

template <class K>
void KeySorter::sort_front(Keys<K>& keys, int64_t count) {
  sort_alone(sorter_, keys.begin(), count);
}

template <class K>
void KeySorter::sort(Keys<K>& keys) {
  const int64_t n = keys.n;
  int64_t pieces = 1;
  for (const int64_t threads = parallel_width(); 2 * pieces <= threads && n / (2 * pieces) >= kLeastPiece;)
    pieces *= 2;
  if (pieces == 1) return sort_alone(sorter_, keys.begin(), n);
  const int64_t width = (n + pieces - 1) / pieces;
  parallel_for(n, width, [&](int64_t begin, int64_t end) {
    sort_alone(hwy::Sorter(), keys.begin() + begin, end - begin);
  });
  Keys<K> other(n);
  for (int64_t sorted = width; sorted < n; sorted *= 2) {
    merge_neighbours(keys, other, sorted);
    std::swap(keys, other);
  }
}

template void KeySorter::sort(Keys<uint16_t>&);
template void KeySorter::sort(Keys<uint32_t>&);
template void KeySorter::sort(Keys<uint64_t>&);
template void KeySorter::sort(Keys<hwy::uint128_t>&);
template void KeySorter::sort_first(Keys<uint64_t>&, int64_t);
template void KeySorter::sort_first(Keys<hwy::uint128_t>&, int64_t);
template void KeySorter::sort_front(Keys<uint64_t>&, int64_t);
template void KeySorter::sort_front(Keys<hwy::uint128_t>&, int64_t);

}  // namespace mx::kernels
