#include "mxrun/launchers/agent_side.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/deadline.h"
#include "comm/net/interface.h"
#include "comm/net/resolve.h"
#include "comm/net/socket.h"
#include "comm/net/tls.h"
#include "comm/rendezvous/client.h"
#include "engine/base/check.h"
#include "engine/base/error.h"
#include "mxrun/hosts/text.h"
#include "mxrun/launchers/rendezvous_channel.h"
#include "mxrun/planning.h"

namespace mx::launch {
namespace {

/// Closes the channel when the connection is lost, also if that is before the channel exists.
class ConnectionLoss {
 public:
  void happen() {
    const std::lock_guard lock(mutex_);
    happened_ = true;
    if (close_) close_();
  }
  void then(std::function<void()> close) {
    const std::lock_guard lock(mutex_);
    close_ = std::move(close);
    if (happened_) close_();
  }

 private:
  std::mutex mutex_;
  bool happened_ = false;
  std::function<void()> close_;
};

bool same_address(const sockaddr* a, const sockaddr* b) {
  if (a == nullptr || a->sa_family != b->sa_family) return false;
  if (a->sa_family == AF_INET)
    return reinterpret_cast<const sockaddr_in*>(a)->sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in*>(b)->sin_addr.s_addr;
  return a->sa_family == AF_INET6 &&
         std::memcmp(&reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr,
                     &reinterpret_cast<const sockaddr_in6*>(b)->sin6_addr, sizeof(in6_addr)) == 0;
}

}  // namespace

int agent_node(const Options& options, const Lookup& lookup) {
  if (options.agent_node >= 0) return options.agent_node;
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_NODEID", "JOB_COMPLETION_INDEX"}) {
    // srun exports PMIX_RANK as well, but the node is its SLURM_NODEID.
    if (std::string_view(name) == "PMIX_RANK" && lookup("SLURM_NODEID")) continue;
    const std::optional<std::string> value = lookup(name);
    if (!value) continue;
    const std::optional<int> number = text::parse_number(*value);
    MX_CHECK(number, InvalidArgument, "[mxrun] agent: expected a number in ", name, ", got ",
             text::quoted(*value));
    return *number;
  }
  throw InvalidArgument("[mxrun] agent: expected --agent-node, or to be started by srun or mpirun");
}

void forget_task_variables() {
  constexpr std::string_view kPrefixes[] = {
      "OMPI_COMM_WORLD_", "OMPI_UNIVERSE_", "OMPI_MCA_ess",  "OMPI_MCA_orte",
      "OMPI_MCA_pmix",    "PMIX_",          "PMI_",          "SLURM_STEP",
      "SLURM_PROCID",     "SLURM_LOCALID",  "SLURM_NODEID",  "SLURM_TASK_PID",
      "SLURM_GTIDS",      "SLURM_SRUN_",    "SLURM_LAUNCH_", "SLURM_CPU_BIND"};
  std::vector<std::string> found;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view entry = *variable;
    for (const std::string_view prefix : kPrefixes)
      if (entry.starts_with(prefix)) found.emplace_back(entry.substr(0, entry.find('=')));
  }
  for (const std::string& name : found) unsetenv(name.c_str());
}

std::string read_hexadecimal_secret(int descriptor) {
  constexpr size_t kLongest = 2048;
  std::string digits;
  for (char c = 0; digits.size() <= kLongest;) {
    // A byte at a time: what follows the line belongs to somebody else.
    const ssize_t got = read(descriptor, &c, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0 || c == '\n') break;
    digits += c;
  }
  MX_CHECK(!digits.empty() && digits.size() <= kLongest && digits.size() % 2 == 0, InvalidArgument,
           "[mxrun] agent: expected the secret as a line of hexadecimal digits on standard input, got ",
           digits.size(), " characters");
  std::optional<std::string> secret = text::from_hexadecimal(digits);
  MX_CHECK(secret, InvalidArgument,
           "[mxrun] agent: expected the secret as hexadecimal digits, got other characters");
  return *std::move(secret);
}

std::unique_ptr<Channel> connect_agent(const Options& options, int node, const std::string& secret) {
  const auto loss = std::make_shared<ConnectionLoss>();
  comm::RendezvousClientOptions connection;
  connection.on_broken = [loss](const std::exception_ptr&) { loss->happen(); };
  connection.address = options.rendezvous;
  connection.self.job = options.job;
  connection.self.secret = secret;
  if (options.tls) connection.self.tls = std::make_shared<const comm::TlsContext>(tls_settings(options));
  connection.self.epoch = comm::kAnyEpoch;
  connection.self.rank = -1;
  connection.role = "agent";
  connection.heartbeat_ms = options.heartbeat_ms;
  connection.dead_after_ms = options.dead_after_ms;
  const int64_t wait_ms = options.start_timeout_ms > 0 ? options.start_timeout_ms : options.timeout_ms;
  auto client = std::make_shared<comm::RendezvousClient>(connection, comm::Deadline::after_ms(wait_ms));
  const ChannelPrefixes prefixes = channel_prefixes(node);
  auto channel =
      std::make_unique<RendezvousChannel>(std::move(client), prefixes.from_agent, prefixes.to_agent);
  loss->then(channel->closer());
  return channel;
}

std::string interface_towards(const std::string& endpoint) {
  const comm::Endpoint to = comm::parse_endpoint(endpoint);
  int error = 0;
  const comm::AddressList found = comm::look_up(to, SOCK_DGRAM, 0, error);
  if (!found) return "";
  // Connecting a datagram socket sends nothing; the system chooses the address of this side.
  const comm::Fd probe(socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  if (!probe || connect(probe.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      getsockname(probe.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0)
    return "";
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner_of_all(all, &freeifaddrs);
  for (const ifaddrs* entry = all; entry != nullptr; entry = entry->ifa_next) {
    if (!same_address(entry->ifa_addr, reinterpret_cast<sockaddr*>(&own))) continue;
    return (entry->ifa_flags & IFF_LOOPBACK) != 0 ? "" : entry->ifa_name;
  }
  return "";
}

}  // namespace mx::launch
