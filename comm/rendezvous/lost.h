// What a rendezvous publishes about a process that is lost.
//
// Thread-safety: functions without shared state.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace mx::comm {

struct LostProcess {
  int64_t epoch = 0;
  std::string role;
  int32_t rank = 0;
  std::string host;
  int64_t step = 0;  ///< of its last heartbeat
  std::string reason;
};

/// "<epoch>/lost/": the prefix of the entries of lost processes. The key of one is
/// "<epoch>/lost/<role><rank>", its value "<host>\n<step>\n<reason>".
std::string lost_prefix(int64_t epoch);
std::string lost_key(const LostProcess& lost);
std::string lost_value(const LostProcess& lost);
/// Throws ProtocolError if the entry is malformed.
LostProcess parse_lost(std::string_view key, std::string_view value);
/// "worker rank 3 on host n1 at step 17: no heartbeat for 5000 ms", for messages.
std::string to_string(const LostProcess& lost);

}  // namespace mx::comm
