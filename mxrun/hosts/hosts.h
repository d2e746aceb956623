// Hosts: the machines of a job and how many processes each may take.
//
// The parsers are pure functions of text. They accept at most kMostHosts hosts and kMostSlots slots a host,
// checked before anything is allocated for them. Every error is an InvalidArgument whose message begins with
// "[mxrun]", quotes the text that is wrong, and, in a file, names the line.
//
// Thread-safety: any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mx::launch {

inline constexpr int kMostHosts = 10000;
inline constexpr int kMostSlots = 4096;

struct Host {
  std::string name;
  int slots = 1;
  bool operator==(const Host&) const = default;
};

/// Parses "a:4,b,c:2", the value of -H. A host without a number has one slot. A host that is listed several
/// times without a number gets one slot each time; repeating a host that has a number is an error. An IPv6
/// address is written in brackets: "[::1]:4".
std::vector<Host> parse_host_list(std::string_view text);

/// Parses a hostfile: a host a line, as "name", "name:N" or "name slots=N", in the style of Open MPI. "#"
/// begins a comment. "max_slots=N" is accepted when it is at least the number of slots. Repeated hosts are
/// treated as in parse_host_list(). `source` is the file's name for messages. A file without hosts is an
/// error.
std::vector<Host> parse_hostfile(std::string_view text, const std::string& source);
/// Reads and parses a hostfile of at most 4 MiB.
std::vector<Host> read_hostfile(const std::string& path);

/// Returns the list as parse_host_list() reads it.
std::string to_string(const std::vector<Host>& hosts);

/// Checks the name of a host: letters, digits, ".", "_", "-", or an IPv6 address (letters, digits, ":", "."
/// and "%"); at most 253 characters; no "-" at the start, because ssh would take it for an option. Throws
/// with `where` ahead of the message.
void check_host_name(std::string_view name, const std::string& where);

}  // namespace mx::launch
