#include "mxrun/status_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>

#include "comm/deadline.h"

namespace mx::launch {
namespace {

constexpr int kAnswerMs = 5000;
constexpr int kSendBytes = 1 << 20;  // the answer of a job of thousands of processes fits into the buffer
constexpr size_t kLongestAnswer = size_t{64} << 20;

struct StatusAddress {
  sockaddr_un name{};
  socklen_t length = 0;
};

std::string status_prefix() { return "mxrun/" + std::to_string(geteuid()) + "/"; }

StatusAddress address_of(const std::string& job) {
  StatusAddress address;
  address.name.sun_family = AF_UNIX;
  // The first byte stays 0: the name is no file.
  const std::string name = (status_prefix() + job).substr(0, sizeof(address.name.sun_path) - 1);
  std::memcpy(address.name.sun_path + 1, name.data(), name.size());
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

bool same_user(int socket) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

}  // namespace

StatusSocket::StatusSocket(const std::string& job) {
  const int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (made < 0) return;
  const StatusAddress address = address_of(job);
  if (bind(made, reinterpret_cast<const sockaddr*>(&address.name), address.length) == 0 &&
      listen(made, 16) == 0) {
    fd_ = made;
  } else {
    close(made);
  }
}

StatusSocket::~StatusSocket() {
  if (fd_ >= 0) close(fd_);
}

void StatusSocket::answer(const std::function<std::string()>& text) const {
  for (;;) {
    const int peer = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (peer < 0) return;
    if (same_user(peer)) {
      setsockopt(peer, SOL_SOCKET, SO_SNDBUF, &kSendBytes, sizeof(kSendBytes));
      const std::string answer = text();
      // A reader gets all or, if it does not fit, a part that it refuses.
      if (send(peer, answer.data(), answer.size(), MSG_NOSIGNAL) < 0) errno = 0;
    }
    close(peer);
  }
}

std::vector<std::string> running_jobs() {
  std::vector<std::string> jobs;
  std::ifstream sockets("/proc/net/unix");
  const std::string start = std::string("@").append(status_prefix());
  for (std::string line; std::getline(sockets, line);) {
    const size_t at = line.find(start);
    if (at == std::string::npos) continue;
    // Another user can take such a name for a socket, too. mxrun itself accepts only printable names.
    const std::string name = line.substr(at + start.size());
    const auto is_printable = [](char c) { return c > 0x20 && c < 0x7f; };
    if (std::all_of(name.begin(), name.end(), is_printable)) jobs.push_back(name);
  }
  std::sort(jobs.begin(), jobs.end());
  jobs.erase(std::unique(jobs.begin(), jobs.end()), jobs.end());  // a line for each connection, too
  return jobs;
}

std::optional<std::string> ask_status(const std::string& job) {
  const int peer = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (peer < 0) return std::nullopt;
  const StatusAddress address = address_of(job);
  std::optional<std::string> answer;
  if (connect(peer, reinterpret_cast<const sockaddr*>(&address.name), address.length) == 0 &&
      same_user(peer)) {
    answer.emplace();
    const comm::Deadline deadline = comm::Deadline::after_ms(kAnswerMs);
    char block[4096];
    while (answer->size() < kLongestAnswer) {
      pollfd readable{peer, POLLIN, 0};
      if (poll(&readable, 1, deadline.poll_ms()) <= 0) break;
      const ssize_t got = read(peer, block, sizeof(block));
      if (got <= 0) break;
      answer->append(block, static_cast<size_t>(got));
    }
  }
  close(peer);
  return answer;
}

}  // namespace mx::launch
