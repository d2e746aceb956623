// What a rendezvous publishes about a process that is lost, and about one that fails because of it.
//
// Thread-safety: functions without shared state.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace mx::comm {

class Rendezvous;

struct LostProcess {
  int64_t epoch = 0;
  std::string role;
  int32_t rank = 0;
  std::string host;
  int64_t step = 0;  ///< of its last heartbeat; -1: not known
  std::string reason;
};

/// "<epoch>/lost/": the prefix of the entries of lost processes. The key of one is
/// "<epoch>/lost/<role><rank>", its value "<host>\n<step>\n<reason>".
std::string lost_prefix(int64_t epoch);
std::string lost_key(const LostProcess& lost);
std::string lost_value(const LostProcess& lost);
/// Throws ProtocolError if the entry is malformed.
LostProcess parse_lost(std::string_view key, std::string_view value);
/// "rank 3 on host n1 at step 17: no heartbeat for 5000 ms", for messages.
std::string to_string(const LostProcess& lost);

struct ProcessName {
  std::string role;  ///< "worker", "server"
  int32_t rank = 0;
  bool operator==(const ProcessName&) const = default;
  auto operator<=>(const ProcessName&) const = default;
};

/// A process has noticed by itself that another one failed, is lost or did not come in time, and will
/// probably fail for that reason. It says so before its program learns of the error. So whoever looks for the
/// first failure is not misled when the process ends earlier than the one that failed first, or when the
/// other one never ends.
struct Consequence {
  int64_t epoch = 0;
  ProcessName process;  ///< that will fail
  ProcessName cause;    ///< that failed before
  bool late = false;    ///< the cause may be alive: the process waited for it until a time limit
  std::string host{};   ///< of the cause; empty if not known
};

/// "<epoch>/because/": the prefix of the entries. The key of one is "<epoch>/because/<role><rank>" of the
/// process, its value "<role><rank>" of the cause, followed by "\nlate" if the cause came too late, and by
/// "\nhost=<name>" if its host is known.
std::string consequence_prefix(int64_t epoch);
/// Throws ProtocolError if the entry is malformed.
Consequence parse_consequence(std::string_view key, std::string_view value);
/// Writes the entry and waits until it is written. Only the first one of a process counts. Ignores errors:
/// without a rendezvous, nobody looks for the first failure.
void report_consequence(Rendezvous& rendezvous, const Consequence& consequence) noexcept;

}  // namespace mx::comm
