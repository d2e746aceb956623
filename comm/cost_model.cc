#include "comm/cost_model.h"

#include <algorithm>
#include <cstdio>
#include <limits>

namespace mx::comm {

const char* to_string(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::gather:
      return "gather";
    case Algorithm::direct:
      return "direct";
    case Algorithm::ring:
      return "ring";
    case Algorithm::two_level:
      return "two_level";
  }
  return "unknown";
}

namespace {

constexpr Algorithm kAllAlgorithms[] = {Algorithm::gather, Algorithm::direct, Algorithm::ring,
                                        Algorithm::two_level};

// Memory is read and added at about this speed while a call folds.
constexpr double kFoldUsPerByte = 1e-4;
// The most memory that gathering uses, for the data of all ranks. Beyond it, direct exchange is faster on
// every network, because it moves fewer bytes and folds pieces while others arrive.
constexpr size_t kMostGatheredBytes = size_t{1} << 20;

}  // namespace

CostModel::CostModel(int ranks, int hosts, double latency_us, double gigabytes_per_s)
    : ranks_(ranks), hosts_(hosts), latency_us_(latency_us), us_per_byte_(1e-3 / gigabytes_per_s) {}

void CostModel::set_samples(std::vector<Sample> samples) {
  std::sort(samples.begin(), samples.end(),
            [](const Sample& a, const Sample& b) { return a.bytes < b.bytes; });
  samples_ = std::move(samples);
  for (const Algorithm algorithm : kAllAlgorithms) repair(algorithm);
}

void CostModel::repair(Algorithm algorithm) {
  const auto time_of = [&](size_t i) -> double& { return samples_[i].us[static_cast<size_t>(algorithm)]; };
  if (samples_.empty() || time_of(0) < 0) return;
  for (size_t i = 1; i < samples_.size(); ++i)
    if (time_of(i) < 0)
      time_of(i) = time_of(i - 1) * static_cast<double>(samples_[i].bytes) /
                   static_cast<double>(samples_[i - 1].bytes);
  for (size_t i = samples_.size() - 1; i-- > 0;) time_of(i) = std::min(time_of(i), time_of(i + 1));
}

bool CostModel::is_usable(Algorithm algorithm, size_t bytes) const {
  // With one rank per host, or one host, two levels are one.
  if (algorithm == Algorithm::two_level) return hosts_ > 1 && hosts_ < ranks_;
  return algorithm != Algorithm::gather || bytes <= kMostGatheredBytes / static_cast<size_t>(ranks_);
}

double CostModel::predict_us(Algorithm algorithm, size_t bytes) const {
  if (!is_usable(algorithm, bytes)) return std::numeric_limits<double>::infinity();
  const double size = static_cast<double>(bytes);
  if (samples_.empty()) {
    const double n = ranks_, others = n - 1, share = others / n;
    // Messages to several ranks overlap in part: each after the first costs half a latency.
    const double fan_out = latency_us_ * (1 + (others - 1) / 2);
    switch (algorithm) {
      case Algorithm::gather:
        return fan_out + others * size * us_per_byte_ + n * size * kFoldUsPerByte;
      case Algorithm::direct:
        return 3 * fan_out + 2 * share * size * us_per_byte_ + size * kFoldUsPerByte;
      case Algorithm::ring:
        return 2 * others * latency_us_ + fan_out + 2 * share * size * us_per_byte_ + size * kFoldUsPerByte;
      case Algorithm::two_level:
        return 4 * fan_out + 4 * size * us_per_byte_;
    }
  }
  const auto time_of = [&](size_t i) { return samples_[i].us[static_cast<size_t>(algorithm)]; };
  if (time_of(0) < 0) return std::numeric_limits<double>::infinity();
  size_t right = 0;
  while (right < samples_.size() && samples_[right].bytes < bytes) ++right;
  if (right == 0) return time_of(0);
  const size_t last = samples_.size() - 1;
  if (right > last) {
    // Beyond the largest size, the time grows as between the two largest ones, but at least half as fast as
    // in proportion to the bytes: a disturbed measurement could make it fall.
    const double end = static_cast<double>(samples_[last].bytes);
    double slope = time_of(last) / end;
    if (last > 0) {
      const double before = static_cast<double>(samples_[last - 1].bytes);
      slope = std::max(slope / 2, (time_of(last) - time_of(last - 1)) / (end - before));
    }
    return time_of(last) + slope * (size - end);
  }
  const double a = static_cast<double>(samples_[right - 1].bytes),
               b = static_cast<double>(samples_[right].bytes);
  return time_of(right - 1) + (time_of(right) - time_of(right - 1)) * (size - a) / (b - a);
}

Algorithm CostModel::choose(size_t bytes, Order order) const {
  Algorithm best = Algorithm::direct;
  double best_us = std::numeric_limits<double>::infinity();
  for (const Algorithm algorithm : kAllAlgorithms) {
    if (order == Order::rank && !folds_by_rank(algorithm)) continue;
    const double us = predict_us(algorithm, bytes);
    if (us < best_us) {
      best_us = us;
      best = algorithm;
    }
  }
  return best;
}

std::string CostModel::describe() const {
  char line[160];
  std::snprintf(line, sizeof line, "allreduce, %d ranks on %d hosts, microseconds (%s)\n", ranks_, hosts_,
                samples_.empty() ? "not measured" : "measured");
  std::string text = line;
  std::snprintf(line, sizeof line, "%10s %10s %10s %10s %10s  %-9s %-9s\n", "bytes", "gather", "direct",
                "ring", "two_level", "rank", "any");
  text += line;
  for (size_t bytes = 1024; bytes <= size_t{64} << 20; bytes *= 4) {
    std::snprintf(line, sizeof line, "%10zu", bytes);
    text += line;
    for (const Algorithm algorithm : kAllAlgorithms) {
      const double us = predict_us(algorithm, bytes);
      if (us < 1e15)
        std::snprintf(line, sizeof line, " %10.1f", us);
      else
        std::snprintf(line, sizeof line, " %10s", "-");
      text += line;
    }
    std::snprintf(line, sizeof line, "  %-9s %-9s\n", to_string(choose(bytes, Order::rank)),
                  to_string(choose(bytes, Order::any)));
    text += line;
  }
  return text;
}

}  // namespace mx::comm
