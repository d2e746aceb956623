#include "mxrun/supervisor_parts.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "engine/base/check.h"

namespace mx::launch {

void print_error(const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const ssize_t done = write(STDERR_FILENO, text.data() + at, text.size() - at);
    if (done < 0 && errno != EINTR) return;
    if (done > 0) at += static_cast<size_t>(done);
  }
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

std::unique_ptr<JobRendezvous> open_rendezvous(const Job& job) {
  JobRendezvous::Settings settings;
  settings.job = job.options.job;
  settings.secret = job.secret;
  settings.address = job.listen_address;
  settings.port = static_cast<uint16_t>(job.listen_port);
  settings.heartbeat_ms = job.options.heartbeat_ms;
  settings.dead_after_ms = job.options.dead_after_ms;
  try {
    return std::make_unique<JobRendezvous>(settings);
  } catch (const CommunicationError& error) {
    throw BindFailed(mx::detail::concat("--rdzv: cannot listen at ", job.listen_address, ":", job.listen_port,
                                        ": ", error.what()));
  }
}

void check_listen_address(const Job& job) { open_rendezvous(job); }

}  // namespace mx::launch
