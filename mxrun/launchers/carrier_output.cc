#include "mxrun/launchers/carrier_output.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "comm/deadline.h"
#include "engine/base/check.h"
#include "engine/base/threads.h"

namespace mx::launch {
namespace {

// Bytes that are read of one stream before it is the turn of the next one.
constexpr size_t kCarrierReadAtOnce = 256 << 10;
// How long the thread waits for output before it looks whether it should end.
constexpr int kCarrierPollMs = 50;
// A process outside may keep a pipe open. After the carriers, so long a silence counts as the end.
constexpr int64_t kSilenceMs = 200;
// How long the end waits for a reader that does not read.
constexpr int64_t kLastPrintMs = 1000;

}  // namespace

CarrierOutput::CarrierOutput()
    : out_(STDOUT_FILENO), err_(STDERR_FILENO), gone_event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  MX_CHECK(gone_event_, CommunicationError, "[mxrun] an eventfd: ", std::strerror(errno));
}

CarrierOutput::~CarrierOutput() {
  ending_ = true;
  if (thread_.joinable()) thread_.join();
  for (const Pipes& pipes : pipes_) {  // not started
    close(pipes.out);
    close(pipes.err);
  }
}

void CarrierOutput::add(int out_fd, int err_fd) { pipes_.push_back({out_fd, err_fd}); }

void CarrierOutput::start() {
  RankStream::Settings settings;
  settings.alone = pipes_.size() == 1;
  settings.drains = true;
  for (const Pipes& pipes : pipes_) {
    streams_.push_back(std::make_unique<RankStream>(pipes.out, &out_, settings));
    streams_.push_back(std::make_unique<RankStream>(pipes.err, &err_, settings));
  }
  pipes_.clear();
  pending_ = true;
  // Signals are for the thread of the launcher.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = start_thread("output", [this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void CarrierOutput::run() {
  comm::Deadline silent = comm::Deadline::after_ms(kSilenceMs);
  comm::Deadline last = comm::Deadline::after_ms(kLastPrintMs);
  for (;;) {
    if (step()) silent = comm::Deadline::after_ms(kSilenceMs);
    look_for_readers();
    const bool printed = out_.empty() && err_.empty();
    const bool open = std::any_of(streams_.begin(), streams_.end(), [](const auto& s) { return s->open(); });
    pending_ = !printed || (open && !silent.passed());
    if (!open && printed) return;
    if (!ending_) {
      last = comm::Deadline::after_ms(kLastPrintMs);
    } else if (!pending_ || last.passed()) {
      return;
    }
  }
}

void CarrierOutput::look_for_readers() {
  if (out_.broken() == out_gone_ && err_.broken() == err_gone_) return;
  out_gone_ = out_.broken();
  err_gone_ = err_.broken();
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(gone_event_.get(), &one, sizeof one);
}

bool CarrierOutput::reader_gone(bool of_error) const {
  uint64_t count;
  [[maybe_unused]] const ssize_t got = read(gone_event_.get(), &count, sizeof count);
  return of_error ? err_gone_ : out_gone_;
}

// Waits for something to read or print. Returns whether there was something to read.
bool CarrierOutput::step() {
  std::vector<pollfd> watched;
  for (const Outlet* outlet : {&out_, &err_})
    if (!outlet->empty()) watched.push_back({outlet->fd(), POLLOUT, 0});
  const size_t outlets = watched.size();
  for (const auto& stream : streams_)
    if (stream->wants()) watched.push_back({stream->fd(), POLLIN, 0});
  poll(watched.data(), watched.size(), kCarrierPollMs);
  // Where both are one pipe, a write to one takes the room of the other, so only one of them writes.
  for (size_t i = 0; i < outlets; ++i) {
    if (watched[i].revents == 0) continue;
    Outlet& outlet = watched[i].fd == out_.fd() ? out_ : err_;
    const Outlet& other = &outlet == &out_ ? err_ : out_;
    if (other.within_line() && other.shares_file_with(outlet)) continue;
    outlet.write_some();
    if (other.shares_file_with(outlet)) break;
  }
  bool any = false;
  for (const auto& stream : streams_)
    if (stream->wants()) any = stream->read_some(kCarrierReadAtOnce) || any;
  return any;
}

}  // namespace mx::launch
