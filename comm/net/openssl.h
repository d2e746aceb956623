// What this library asks of OpenSSL before it uses it. Internal.
//
// Thread-safety: any thread.
#pragma once

namespace mx::comm {

/// Keeps OpenSSL usable until the very end of the process. By default it frees its memory in a handler at
/// exit, and a process that runs the rendezvous still serves others then.
void prepare_openssl();

}  // namespace mx::comm
