// ProgressBar: shows how far a long loop is.
//
//   training::ProgressBar bar(batches, {.text = "epoch 3"});
//   for (...) {
//     ...
//     bar.advance();
//     bar.note("loss", 0.25);
//   }
//
// On a terminal it is one line that changes, at most ten times a second. In a file or a pipe it is a line for
// each tenth of the way, so that logs stay short. The destructor ends the line. Thread-safety: any thread may
// call any member.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ndarray/attrs.h"

namespace mx::training {

struct ProgressBarOptions {
  std::string text{};              ///< at the beginning of the line
  std::FILE* out = stderr;         ///< must outlive the bar
  std::optional<bool> terminal{};  ///< empty: whether `out` is a terminal
  int64_t interval_ms = 100;       ///< least time between two drawings on a terminal
  int64_t width = 30;              ///< of the bar itself, in characters; at least 1
};

class ProgressBar {
 public:
  /// `total`: number of steps; 0: unknown, then only their count is shown. Throws InvalidArgument for a
  /// negative total or a width below 1.
  explicit ProgressBar(IntArg total, const ProgressBarOptions& options = {});
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// Throws InvalidArgument for a negative number of steps. The count stops at the largest int64_t.
  void advance(int64_t steps = 1);
  /// Sets a number that is shown behind the bar.
  void note(const std::string& name, double value);
  /// Draws the final state and ends the line. Further calls do nothing.
  void finish();
  int64_t done() const;

 private:
  std::string line() const;
  void draw();

  mutable std::mutex mutex_;
  const int64_t total_;
  const ProgressBarOptions options_;
  const bool terminal_;
  const std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point drawn_{};
  int64_t done_ = 0, tenths_ = 0;
  bool finished_ = false;
  std::vector<std::pair<std::string, double>> notes_;
};

}  // namespace mx::training
