// EarlyStopping: ends a training when a value stops improving.
//
//   training::EarlyStopping stopping({.patience = 5});
//   for (epochs) {
//     ...
//     if (stopping.stop(validation_loss)) break;
//     if (stopping.improved()) best.save("best.safetensors");
//   }
//
// Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <source_location>

#include "ndarray/attrs.h"
#include "ndarray/save.h"

namespace mx::training {

struct EarlyStoppingOptions {
  IntArg patience = 10;   ///< so many values in a row may fail to improve; at least 0
  double min_delta = 0;   ///< an improvement is a difference above this; at least 0
  bool maximize = false;  ///< larger values are better
};

class EarlyStopping {
 public:
  /// Throws InvalidArgument for an option that is out of range.
  explicit EarlyStopping(const EarlyStoppingOptions& options = {},
                         std::source_location where = std::source_location::current());
  /// Takes the next value. Returns true if more than `patience` values in a row were no improvement of the
  /// best one. NaN never improves.
  bool stop(double value);
  /// Returns whether the last value was the best so far.
  bool improved() const { return values_ > 0 && bad_ == 0; }
  double best() const { return best_; }
  /// Returns the number of the best value, from 0; -1 before the first one that improves. The best one is at
  /// first infinity (maximize: minus infinity), which NaN and infinity itself do not improve.
  int64_t best_value() const { return best_at_; }

  /// Returns "best", "best_value", "bad" and "values".
  NamedArrays state_dict() const;
  /// Throws InvalidArgument, listing all mismatches, before anything is changed.
  void load_state_dict(const NamedArrays& state,
                       std::source_location where = std::source_location::current());

 private:
  EarlyStoppingOptions options_;
  double best_;
  int64_t best_at_ = -1, bad_ = 0, values_ = 0;
};

}  // namespace mx::training
