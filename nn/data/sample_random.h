// Random numbers of one sample, as a function of a seed, the epoch and the sample's number. So the changes to
// a sample do not depend on its batch, on the order of batches, or on threads.
//
// Generator: Philox4x32-10 (operators/kernels/philox.h); integers are the same on every platform.
#pragma once

#include <cmath>
#include <cstdint>

#include "operators/kernels/philox.h"

namespace mx::data {

/// The purpose of random numbers. Streams of different purposes are independent.
enum class RandomPurpose : uint32_t {
  order = 0x6f726401,
  split = 0x6f726402,
  sample = 0x6f726403,
  batch_order = 0x6f726404,
  draw = 0x6f726405,
};

/// Returns the key for one epoch of one seed.
inline uint64_t epoch_key(int64_t seed, int64_t epoch, RandomPurpose purpose) {
  const auto s = static_cast<uint64_t>(seed), e = static_cast<uint64_t>(epoch);
  const mx::kernels::PhiloxWords words = mx::kernels::philox(
      {static_cast<uint32_t>(e), static_cast<uint32_t>(e >> 32), static_cast<uint32_t>(purpose), 0},
      static_cast<uint32_t>(s), static_cast<uint32_t>(s >> 32));
  return words[0] | uint64_t{words[1]} << 32;
}

/// Returns 128 random bits of sample `index` for source number `source` of an epoch.
inline mx::kernels::PhiloxWords sample_words(uint64_t key, int64_t index, uint32_t source) {
  const auto i = static_cast<uint64_t>(index);
  return mx::kernels::philox({static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32), source, 1},
                             static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32));
}
inline uint64_t sample_key(uint64_t key, int64_t index, uint32_t source) {
  const mx::kernels::PhiloxWords words = sample_words(key, index, source);
  return words[0] | uint64_t{words[1]} << 32;
}

/// Returns a number in [0, 1), a multiple of 2^-53.
inline double unit_interval(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

/// An unlimited stream of random numbers for one sample. A value type; not thread-safe.
class SampleRandom {
 public:
  explicit SampleRandom(uint64_t key) : key_(key) {}

  /// Returns 64 random bits.
  uint64_t next() {
    if (half_ == 0)
      words_ = mx::kernels::philox_block(key_, block_++, static_cast<uint32_t>(RandomPurpose::sample));
    const uint64_t bits =
        half_ == 0 ? words_[0] | uint64_t{words_[1]} << 32 : words_[2] | uint64_t{words_[3]} << 32;
    half_ ^= 1;
    return bits;
  }
  /// Returns a number in [0, 1).
  double uniform() { return unit_interval(next()); }
  /// Returns a number in [low, high).
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  /// Returns a normal number of mean 0 and deviation 1 (Box and Muller).
  double normal() {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(6.283185307179586 * uniform());
  }
  /// Returns a number from 0 to n - 1, all equally likely. Precondition: n > 0. Source: Lemire, "Fast random
  /// integer generation in an interval", 2019.
  int64_t below(int64_t n) {
    const auto range = static_cast<uint64_t>(n);
    unsigned __int128 product = static_cast<unsigned __int128>(next()) * range;
    if (static_cast<uint64_t>(product) < range) {
      const uint64_t threshold = (0 - range) % range;
      while (static_cast<uint64_t>(product) < threshold)
        product = static_cast<unsigned __int128>(next()) * range;
    }
    return static_cast<int64_t>(product >> 64);
  }

 private:
  uint64_t key_;
  uint64_t block_ = 0;
  int half_ = 0;
  mx::kernels::PhiloxWords words_{};
};

}  // namespace mx::data
