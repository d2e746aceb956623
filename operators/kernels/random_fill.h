// Filling a tensor from positions of a random stream. Used only by the sources of random.h.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ndarray/kernels/strided_loop.h"
#include "operators/kernels/philox.h"
#include "operators/kernels/random_words.h"

namespace mx::kernels::detail {

/// Elements that are generated at once: few enough for the first-level cache, and a multiple of every vector
/// width.
inline constexpr int64_t kRandomChunk = 1024;

/// Generates the values of positions [first, first + n), n <= kRandomChunk, from W words per element.
/// convert(words, n, values) is one of the functions of random_words.h.
template <int W, class V>
class Chunk {
 public:
  template <class Convert>
  const V* make(uint64_t seed, uint64_t first, int64_t n, const Convert& convert) {
    constexpr uint64_t kPerBlock = 4 / W;
    const uint64_t block = first / kPerBlock;
    const int64_t skipped = static_cast<int64_t>(first % kPerBlock);
    const int64_t blocks =
        (skipped + n + static_cast<int64_t>(kPerBlock) - 1) / static_cast<int64_t>(kPerBlock);
    random_words(seed, block, W, blocks, words_);
    convert(words_, blocks * static_cast<int64_t>(kPerBlock), values_);
    return values_ + skipped;
  }

 private:
  alignas(64) uint32_t words_[W * (kRandomChunk + 8) + 4 * kVectorSlack];
  alignas(64) V values_[kRandomChunk + 8 + kVectorSlack];
};

/// For pieces of the target in row-major order, calls make(first, n), which returns a pointer to n values,
/// and then put(element, value, i) for each element, where i is its row-major index. Each thread calls
/// maker() for a `make` of its own.
template <class T, class Maker, class Put>
void fill_elements(const Tensor& target, uint64_t offset, const Put& put, const Maker& maker) {
  const Tensor order = row_major_order(target.shape);
  const LoopPlan<2> plan({&order, &target});
  const int64_t ls = plan.strides[0][0], ts = plan.strides[1][0];
  parallel_for(plan.numel, kLoopGrain / 4, [&](int64_t begin, int64_t end) {
    auto make = maker();
    for (int64_t i = begin; i < end; i += kRandomChunk) {
      const int64_t n = std::min(kRandomChunk, end - i);
      const auto* value = make(offset + static_cast<uint64_t>(i), n);
      for_each_run<2>(plan, i, i + n, [&](const int64_t* at, int64_t count) {
        T* t = target.as<T>() + at[1];
        if (ts == 1 && ls == 1) {  // the compiler vectorises this loop
          for (int64_t k = 0; k < count; ++k) put(t[k], value[k], at[0] + k);
        } else {
          for (int64_t k = 0; k < count; ++k) put(t[k * ts], value[k], at[0] + k * ls);
        }
        value += count;
      });
    }
  });
}

/// The same for values of type V that `convert` makes from W words per element.
template <class T, int W, class V, class Convert, class Put>
void fill_converted(const Tensor& target, uint64_t seed, uint64_t offset, const Convert& convert,
                    const Put& put) {
  fill_elements<T>(target, offset, put, [&] {
    return [&, chunk = Chunk<W, V>()](uint64_t first, int64_t n) mutable {
      return chunk.make(seed, first, n, convert);
    };
  });
}

/// An unlimited stream of random numbers for one element, for methods that reject.
class ElementStream {
 public:
  constexpr ElementStream(uint64_t seed, uint64_t position, uint32_t kind)
      : seed_(seed), position_(position), kind_(kind) {}

  constexpr uint64_t next() {
    if (half_ == 0) words_ = philox_block(seed_, position_, kind_, attempt_++);
    const uint64_t result =
        half_ == 0 ? words_[0] | uint64_t{words_[1]} << 32 : words_[2] | uint64_t{words_[3]} << 32;
    half_ ^= 1;
    return result;
  }
  /// Returns a number in (0, 1).
  constexpr double uniform() { return (static_cast<double>(next() >> 11) + 0.5) * 0x1p-53; }

 private:
  const uint64_t seed_, position_;
  const uint32_t kind_;
  uint32_t attempt_ = 0;
  int half_ = 0;
  PhiloxWords words_{};
};

// Kinds of streams, in addition to those with W words per element, whose kind is W.
inline constexpr uint32_t kRetryKind = 3, kElementKind = 4;

/// Returns an integer below `range`, from 64 random bits and, rarely, more from the retry stream.
constexpr uint64_t bounded(uint64_t bits, uint64_t range, uint64_t seed, uint64_t position) {
  unsigned __int128 product = static_cast<unsigned __int128>(bits) * range;
  if (static_cast<uint64_t>(product) < range) {
    const uint64_t threshold = (0 - range) % range;
    ElementStream more(seed, position, kRetryKind);
    while (static_cast<uint64_t>(product) < threshold)
      product = static_cast<unsigned __int128>(more.next()) * range;
  }
  return static_cast<uint64_t>(product >> 64);
}

}  // namespace mx::kernels::detail
