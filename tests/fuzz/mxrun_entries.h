// The entry points of the fuzzers of mxrun: its file of options, what it and its agents send each other, and
// the entries of the rendezvous that have a form. Each takes arbitrary bytes and returns whether they were
// accepted. It ends the process if a promise is broken: an exception that is not an mx::Error, a value out of
// its range, or a text that changes when it is written and read again.
#pragma once

#include <cstddef>
#include <span>

#include "tests/fuzz/entries.h"

namespace mx::fuzz {

bool plan(std::span<const std::byte> text);
bool message_to_agent(std::span<const std::byte> text);
bool message_from_agent(std::span<const std::byte> text);
/// What a running mxrun says to `mxrun top`.
bool job_status(std::span<const std::byte> text);
/// The file of --config, through the whole parser of options.
bool config_file(std::span<const std::byte> text);
/// The bytes are what arrives at the socket between mxrun and an agent of its machine. Returns whether they
/// are whole messages.
bool agent_frames(std::span<const std::byte> bytes);
/// The bytes are entries of the rendezvous, which carry messages between mxrun and an agent elsewhere: one
/// byte for the number of an entry, one for its size, and the entry. Returns whether they are whole messages.
bool agent_pieces(std::span<const std::byte> bytes);
/// A line with the key of an entry, and its value: that of a lost process, or of one that fails because of
/// another.
bool lost_process(std::span<const std::byte> text);
/// Where the ranks of a host find the first one.
bool shm_offer(std::span<const std::byte> text);

inline constexpr Target kMxrunTargets[] = {{"plan", plan},
                                           {"message_to_agent", message_to_agent},
                                           {"message_from_agent", message_from_agent},
                                           {"job_status", job_status},
                                           {"config_file", config_file},
                                           {"agent_frames", agent_frames},
                                           {"agent_pieces", agent_pieces},
                                           {"lost_process", lost_process},
                                           {"shm_offer", shm_offer}};

}  // namespace mx::fuzz
