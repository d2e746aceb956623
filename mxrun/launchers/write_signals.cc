#include "mxrun/launchers/write_signals.h"

#include <csignal>

namespace mx::launch {
namespace {

struct WriteSignal {
  int number;
  bool was_ignored;
};
WriteSignal write_signals[] = {{SIGPIPE, false}, {SIGXFSZ, false}};

}  // namespace

bool is_ignored(int signal_number) {
  struct sigaction action {};
  sigaction(signal_number, nullptr, &action);
  return action.sa_handler == SIG_IGN;
}

void ignore_write_signals() {
  for (WriteSignal& entry : write_signals) {
    entry.was_ignored = is_ignored(entry.number);
    signal(entry.number, SIG_IGN);
  }
}

void restore_write_signals() {
  for (const WriteSignal& entry : write_signals)
    if (!entry.was_ignored) signal(entry.number, SIG_DFL);
}

}  // namespace mx::launch
