#include "nn/training/progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <limits>

#include "engine/base/check.h"

namespace mx::training {
namespace {

using Clock = std::chrono::steady_clock;

/// Returns "75 s", "12 min" or "3.5 h".
std::string duration_text(double seconds) {
  char text[32];
  if (seconds < 120) {
    std::snprintf(text, sizeof text, "%.0f s", seconds);
  } else if (seconds < 7200) {
    std::snprintf(text, sizeof text, "%.0f min", seconds / 60);
  } else {
    std::snprintf(text, sizeof text, "%.1f h", seconds / 3600);
  }
  return text;
}

}  // namespace

ProgressBar::ProgressBar(IntArg total, const ProgressBarOptions& options)
    : total_(total),
      options_(options),
      terminal_(options.terminal.value_or(isatty(fileno(options.out)) != 0)),
      start_(Clock::now()) {
  MX_CHECK(total_ >= 0 && options.width >= 1, InvalidArgument,
           "[ProgressBar] expected a total of at least 0 and a width of at least 1, got ", total_, " and ",
           options.width);
}

ProgressBar::~ProgressBar() { finish(); }

std::string ProgressBar::line() const {
  std::string text = options_.text.empty() ? "" : options_.text + ' ';
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  if (total_ > 0) {
    const double share = std::min(1.0, static_cast<double>(done_) / static_cast<double>(total_));
    const auto filled = static_cast<size_t>(share * static_cast<double>(options_.width));
    text += '[' + std::string(filled, '#') + std::string(static_cast<size_t>(options_.width) - filled, '.') +
            "] " + std::to_string(done_) + '/' + std::to_string(total_);
  } else {
    text += std::to_string(done_);
  }
  for (const auto& [name, value] : notes_) {
    char number[32];
    std::snprintf(number, sizeof number, "%.4g", value);
    text += "  " + name + ' ' + number;
  }
  if (finished_ || done_ == 0) return text + "  " + duration_text(seconds);
  if (total_ > done_)
    text += "  " + duration_text(seconds / static_cast<double>(done_) * static_cast<double>(total_ - done_)) +
            " left";
  return text;
}

/// The caller holds mutex_.
void ProgressBar::draw() {
  if (terminal_) {
    std::fprintf(options_.out, "\r%s\033[K%s", line().c_str(), finished_ ? "\n" : "");
  } else {
    std::fprintf(options_.out, "%s\n", line().c_str());
  }
  std::fflush(options_.out);
  drawn_ = Clock::now();
}

void ProgressBar::advance(int64_t steps) {
  const std::lock_guard lock(mutex_);
  MX_CHECK(steps >= 0, InvalidArgument, "[ProgressBar] expected a number of steps of at least 0, got ",
           steps);
  if (finished_) return;
  if (__builtin_add_overflow(done_, steps, &done_)) done_ = std::numeric_limits<int64_t>::max();
  if (terminal_) {
    if (Clock::now() - drawn_ >= std::chrono::milliseconds(options_.interval_ms)) draw();
  } else if (total_ > 0) {
    // The last tenth is the line of finish().
    const double share = static_cast<double>(done_) / static_cast<double>(total_);
    const auto tenths = static_cast<int64_t>(std::min(9.0, 10 * share));
    if (tenths > tenths_) {
      tenths_ = tenths;
      draw();
    }
  }
}

void ProgressBar::note(const std::string& name, double value) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(notes_.begin(), notes_.end(), [&](const auto& n) { return n.first == name; });
  if (found != notes_.end()) {
    found->second = value;
  } else {
    notes_.emplace_back(name, value);
  }
}

void ProgressBar::finish() {
  const std::lock_guard lock(mutex_);
  if (finished_) return;
  finished_ = true;
  draw();
}

int64_t ProgressBar::done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

}  // namespace mx::training
