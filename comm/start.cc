#include "comm/start.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <utility>

#include "comm/hash.h"
#include "comm/net/resolve.h"
#include "comm/net/secret.h"
#include "comm/net/socket.h"
#include "engine/base/check.h"

namespace mx::comm {

namespace {

/// Tries until the deadline; returns null after it.
AddressList look_up_until(const Endpoint& endpoint, Deadline deadline, std::string& problem) {
  for (;;) {
    int error = 0;
    if (AddressList found = look_up(endpoint, SOCK_DGRAM, 0, error)) return found;
    problem = ::gai_strerror(error);
    if (deadline.passed()) return {nullptr, nullptr};
    ::poll(nullptr, 0, 100);
  }
}

std::string numeric(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST] = {};
  const int error = ::getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  MX_CHECK(error == 0, CommunicationError, "[place] expected an address, got ", ::gai_strerror(error));
  return text;
}

AddressList must_look_up(const Endpoint& endpoint, Deadline deadline) {
  std::string problem;
  AddressList found = look_up_until(endpoint, deadline, problem);
  MX_CHECK(found, InvalidArgument, "[place] expected the address of host '", endpoint.host, "', got ",
           problem, "; MX_RDZV=host:port names another one");
  return found;
}

}  // namespace

std::string secret_of_job() {
  const std::string& handed = job_secret();
  if (!handed.empty()) return handed;
  const char* const path = std::getenv("MX_SECRET_FILE");
  if (path == nullptr || *path == '\0') return "";
  return read_secret_file(path);
}

std::string first_node(const std::string& list) {
  const auto malformed = [&](bool fine) {
    MX_CHECK(fine, InvalidArgument, "[place] expected a list of nodes such as 'n[0-3,7]', got '", list, "'");
  };
  const size_t open = list.find_first_of("[,");
  if (open == std::string::npos || list[open] == ',') {
    const std::string name = list.substr(0, open);
    malformed(!name.empty() && name.find(']') == std::string::npos);
    return name;
  }
  const size_t close = list.find(']', open);
  malformed(close != std::string::npos);
  const size_t number_end = list.find_first_of("-,]", open + 1);
  malformed(number_end > open + 1);
  std::string name = list.substr(0, open) + list.substr(open + 1, number_end - open - 1);
  // A further part of the name, which may have a list of its own: "rack[1-2]n[0-3]".
  const std::string rest = list.substr(close + 1);
  if (rest.empty() || rest[0] == ',') return name;
  return name + first_node(rest);
}

uint16_t port_of_job(const std::string& job) {
  return static_cast<uint16_t>(kFirstJobPort + hash_text(job) % (kLastJobPort - kFirstJobPort + 1));
}

Endpoint rendezvous_of_rank_zero(const Place& place, const Environment& environment) {
  if (!place.rendezvous.empty()) return parse_endpoint(place.rendezvous);
  std::string host = "127.0.0.1";
  if (place.local_size < place.size) {
    const auto list = environment("SLURM_STEP_NODELIST");
    MX_CHECK(list && !list->empty(), InvalidArgument,
             "[place] expected MX_RDZV or SLURM_STEP_NODELIST to say where rank 0 is, got neither");
    host = first_node(*list);
  }
  return {host, port_of_job(place.job)};
}

// The text of rank 0 begins with '+', or with '-' before its error.
SharedRendezvous share_over_mpi(Module& mpi, const Place& place, bool keeps_secret,
                                const std::function<std::string(const std::string& secret)>& start) {
  std::string text;
  std::exception_ptr failure;
  if (place.rank == 0) try {
      std::string secret = secret_of_job();
      MX_CHECK(!keeps_secret || !secret.empty(), InvalidArgument,
               "[job] expected MX_SECRET_FILE to name a file with the secret, because with TLS (MX_TLS) MPI ",
               "does not pass it on, got none");
      if (secret.empty()) secret = random_secret();
      const std::string address = start(secret);
      text = "+" + address + "\n" + (keeps_secret ? "" : secret);
    } catch (const std::exception& error) {
      failure = std::current_exception();
      text = std::string("-") + error.what();
    }
  try {
    text = mpi.share_from_first(place, text);
  } catch (...) {
    if (failure) std::rethrow_exception(failure);  // what happened here first
    throw;
  }
  if (failure) std::rethrow_exception(failure);
  const size_t cut = text.find('\n');
  MX_CHECK(!text.empty() && text[0] == '+' && cut != std::string::npos, CommunicationError,
           "[job] expected the address of the rendezvous from rank 0, got its error: ",
           text.empty() ? text : text.substr(1));
  return {text.substr(1, cut - 1), text.substr(cut + 1)};
}

std::string resolve(const std::string& host, Deadline deadline) {
  const AddressList found = must_look_up({host, 1}, deadline);
  return numeric(found->ai_addr, found->ai_addrlen);
}

std::string address_towards(const Endpoint& remote, Deadline deadline) {
  const AddressList found = must_look_up(remote, deadline);
  const Fd socket(::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  // connect() of a datagram socket only chooses the route.
  MX_CHECK(socket && ::connect(socket.get(), found->ai_addr, found->ai_addrlen) == 0 &&
               ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &size) == 0,
           CommunicationError, "[place] expected a route to ", to_string(remote), ", got ",
           std::strerror(errno));
  return numeric(reinterpret_cast<const sockaddr*>(&own), size);
}

}  // namespace mx::comm
