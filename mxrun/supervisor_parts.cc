#include "mxrun/supervisor_parts.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string>
#include <string_view>

#include "comm/net/socket.h"
#include "engine/base/check.h"
#include "mxrun/hosts/text.h"
#include "mxrun/launchers/open_files.h"

namespace mx::launch {

void print_error(const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const ssize_t done = write(STDERR_FILENO, text.data() + at, text.size() - at);
    if (done < 0 && errno != EINTR) return;
    if (done > 0) at += static_cast<size_t>(done);
  }
}

void print_message(std::string_view message) {
  print_error(mx::detail::concat("mxrun: ", text::without_place(message), "\n"));
}

int free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  int port = 0;
  if (fd >= 0 && bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
      getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0) {
    port = ntohs(address.sin_port);
  }
  if (fd >= 0) close(fd);
  return port;
}

namespace {

/// Returns how many descriptors mxrun needs: its own, a connection of the rendezvous for each process, and
/// for each node the pipes of its carrier and the connection of its agent.
size_t files_of_launcher(const Job& job) {
  size_t files = 24 + 6 * job.nodes.size();
  for (const NodePlan& node : job.nodes) files += node.ranks.size();
  return files;
}

/// Throws BindFailed if the address of the rendezvous is what keeps it from starting.
void check_that_one_can_listen(const Job& job) {
  try {
    comm::listen_at(job.listen_address, static_cast<uint16_t>(job.listen_port));
  } catch (const CommunicationError& error) {
    throw BindFailed(mx::detail::concat("--rdzv: cannot listen at ", job.listen_address, ":", job.listen_port,
                                        ": ", error.what()));
  }
}

}  // namespace

std::unique_ptr<JobRendezvous> open_rendezvous(const Job& job) {
  // Checked ahead, because in the middle of a start a missing descriptor shows as another error.
  check_open_files(files_of_launcher(job), "mxrun");
  JobRendezvous::Settings settings;
  settings.job = job.options.job;
  settings.secret = job.secret;
  settings.tls = job.tls;
  settings.address = job.listen_address;
  settings.port = static_cast<uint16_t>(job.listen_port);
  settings.heartbeat_ms = job.options.heartbeat_ms;
  settings.dead_after_ms = job.options.dead_after_ms;
  try {
    return std::make_unique<JobRendezvous>(settings);
  } catch (const CommunicationError&) {
    // Only if this fails, too, listening is what failed.
    check_that_one_can_listen(job);
    throw;
  }
}

void check_listen_address(const Job& job) { open_rendezvous(job); }

}  // namespace mx::launch
