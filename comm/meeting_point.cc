#include "comm/meeting_point.h"

#include <cstddef>
#include <exception>
#include <utility>

#include "comm/hash.h"
#include "comm/net/secret.h"
#include "comm/start.h"
#include "engine/base/check.h"

namespace mx::comm {

std::string first_node(const std::string& list) {
  const auto require = [&](bool good) {
    MX_CHECK(good, InvalidArgument, "[place] expected a list of nodes such as 'n[0-3,7]', got '", list, "'");
  };
  const size_t open = list.find_first_of("[,");
  if (open == std::string::npos || list[open] == ',') {
    const std::string name = list.substr(0, open);
    require(!name.empty() && name.find(']') == std::string::npos);
    return name;
  }
  const size_t close = list.find(']', open);
  require(close != std::string::npos);
  const size_t number_end = list.find_first_of("-,]", open + 1);
  require(number_end > open + 1);
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

}  // namespace mx::comm
