// Modes of a thread: whether operations on arrays that require gradients are recorded, and whether layers
// that behave differently in training (dropout) train or predict.
//
//   {
//     NoGrad pause;            // until the end of the block, on this thread
//     w -= 0.1 * w.grad();
//   }
//
// Every class here is a scope of one thread. Scopes must end on the thread that began them, in reverse order.
// A new thread records, and has no training mode.
#pragma once

#include <optional>

#include "ndarray/detail/array_impl.h"

namespace mx {

/// Returns true if this thread records operations on arrays that require gradients.
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

/// Pauses recording: results do not require gradients, and arrays that require them may be changed in place.
class NoGrad : detail::RecordingScope {
 public:
  NoGrad() : RecordingScope(false) {}
};
/// Resumes recording inside a NoGrad scope.
class EnableGrad : detail::RecordingScope {
 public:
  EnableGrad() : RecordingScope(true) {}
};

/// Make layers train (TrainMode) or predict (PredictMode) on this thread, whatever their own flags are.
class TrainMode : detail::ModeScope {
 public:
  TrainMode() : ModeScope(true) {}
};
class PredictMode : detail::ModeScope {
 public:
  PredictMode() : ModeScope(false) {}
};
/// Returns true inside a TrainMode scope and false inside a PredictMode scope; the innermost one counts.
/// Empty outside of both.
inline std::optional<bool> mode_override() { return detail::training_mode; }

}  // namespace mx
