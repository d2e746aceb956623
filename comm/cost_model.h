// CostModel: predicts how long each algorithm of allreduce takes, and chooses the fastest.
//
// Without measurements, the time of an algorithm is its messages times a latency, plus its bytes times the
// time per byte. TransportCommunicator::fit() measures a few sizes instead, and the model interpolates
// between them. All ranks use the times of rank 0, so that they choose the same algorithm. comm::world() fits
// the model once, when it connects the ranks.
//
// The choice never changes the bits of Order::rank: only algorithms that fold by rank are candidates for it.
//
// Thread-safety: a value without shared state.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace mx::comm {

enum class Algorithm : uint8_t { gather, direct, ring, two_level };
inline constexpr int kAlgorithms = 4;
const char* to_string(Algorithm algorithm);
/// Returns whether the sums of an algorithm are left folds over the ranks.
constexpr bool folds_by_rank(Algorithm algorithm) {
  return algorithm == Algorithm::gather || algorithm == Algorithm::direct;
}

class CostModel {
 public:
  /// A model for a group of `ranks` ranks on `hosts` hosts. A message takes `latency_us` microseconds, and a
  /// connection carries `gigabytes_per_s`.
  explicit CostModel(int ranks = 1, int hosts = 1, double latency_us = 5, double gigabytes_per_s = 2);

  /// Stands for the time of an algorithm that was not measured with a size.
  static constexpr double kNotMeasured = -1;
  /// Times in microseconds, measured with messages of these sizes.
  struct Sample {
    size_t bytes = 0;
    std::array<double, kAlgorithms> us{};
  };
  /// Replaces the model by a table of measured times. Times between two sizes are interpolated; beyond the
  /// largest size, they grow as between the two largest ones. A time that exceeds that of a larger size was
  /// disturbed and is lowered to it. An algorithm that was measured with small sizes only is assumed to take
  /// time in proportion to the bytes beyond them.
  void set_samples(std::vector<Sample> samples);
  const std::vector<Sample>& samples() const { return samples_; }

  /// The time that an allreduce of `bytes` bytes should take; infinite if the algorithm is not usable.
  double predict_us(Algorithm algorithm, size_t bytes) const;
  /// Returns whether an algorithm suits the group and the size. Gathering needs memory for the data of all
  /// ranks, so it is only for small sizes.
  bool is_usable(Algorithm algorithm, size_t bytes) const;
  /// The fastest usable algorithm that computes sums in the given order.
  Algorithm choose(size_t bytes, Order order) const;

  /// A table with the times of all algorithms by size, for people.
  std::string describe() const;

 private:
  void repair(Algorithm algorithm);

  int ranks_, hosts_;
  double latency_us_, us_per_byte_;
  std::vector<Sample> samples_;
};

}  // namespace mx::comm
