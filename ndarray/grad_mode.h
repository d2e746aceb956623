// What a thread does with arrays that require gradients: record operations on them or not, and whether layers
// that behave differently in training (dropout) train or predict.
//
//   {
//     NoGrad pause;            // until the end of the block, on this thread
//     w -= 0.1 * w.grad();
//   }
//
// All are scopes of one thread: they end in the reverse order of their beginning, on the thread that began
// them. Threads start with recording on and no mode.
#pragma once

#include <optional>

#include "ndarray/detail/array_impl.h"

namespace mx {

/// Does this thread record operations on arrays that require gradients?
inline bool grad_enabled() { return detail::recording; }

namespace detail {

class RecordingScope {
 public:
  explicit RecordingScope(bool on) : before_(recording) { recording = on; }
  ~RecordingScope() { recording = before_; }
  RecordingScope(const RecordingScope&) = delete;
  RecordingScope& operator=(const RecordingScope&) = delete;

 private:
  bool before_;
};

inline thread_local constinit std::optional<bool> training_mode;

class ModeScope {
 public:
  explicit ModeScope(bool training) : before_(training_mode) { training_mode = training; }
  ~ModeScope() { training_mode = before_; }
  ModeScope(const ModeScope&) = delete;
  ModeScope& operator=(const ModeScope&) = delete;

 private:
  std::optional<bool> before_;
};

}  // namespace detail

/// Pauses recording: results do not require gradients, and arrays that do may be changed in place.
class NoGrad : detail::RecordingScope {
 public:
  NoGrad() : RecordingScope(false) {}
};
/// Records inside of a NoGrad.
class EnableGrad : detail::RecordingScope {
 public:
  EnableGrad() : RecordingScope(true) {}
};

/// Layers train (TrainMode) or predict (PredictMode) on this thread, whatever each of them is set to.
class TrainMode : detail::ModeScope {
 public:
  TrainMode() : ModeScope(true) {}
};
class PredictMode : detail::ModeScope {
 public:
  PredictMode() : ModeScope(false) {}
};
/// What the innermost of them says; empty outside of any.
inline std::optional<bool> mode_override() { return detail::training_mode; }

}  // namespace mx
