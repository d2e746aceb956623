// The exit codes of mxrun itself; docs/mxrun.md explains them. Otherwise mxrun ends with the code of the
// process that failed first.
#pragma once

namespace mx::launch {

inline constexpr int kExitUsage = 2, kExitRendezvous = 69, kExitBind = 71, kExitAuthentication = 77,
                     kExitConfiguration = 78, kExitTimeout = 124, kExitCannotExecute = 126,
                     kExitNotFound = 127;

}  // namespace mx::launch
