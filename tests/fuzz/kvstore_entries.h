// The entry points of the fuzzers of parameter servers. Each takes arbitrary bytes. It ends the process if a
// promise is broken: an exception that is not an mx::Error, a body beyond its limit, an answer to nobody, or
// contents that change when they are written and read again.
#pragma once

#include <cstddef>
#include <span>

#include "tests/fuzz/entries.h"

namespace mx::fuzz {

/// Returns whether the bytes are exactly one message with a body that fits its kind.
bool kvstore_message(std::span<const std::byte> bytes);
/// Sends the bytes to a server's state machine, as the stream of two workers. Returns whether all of them are
/// whole messages, at least one, that were answered without a refusal.
bool kvstore_machine(std::span<const std::byte> bytes);

inline constexpr Target kKvstoreTargets[] = {{"kvstore_message", kvstore_message},
                                             {"kvstore_machine", kvstore_machine}};

}  // namespace mx::fuzz
