#include "comm/transports.h"

#include "comm/module.h"
#include "comm/shm/shm_communicator.h"
#include "engine/base/check.h"

namespace mx::comm {

namespace {

struct NamedTransport {
  const char* name;
  GroupMaker make;
};

std::shared_ptr<Communicator> make_shm_group(const GroupRequest& request) {
  MX_CHECK(request.place.local_size == request.place.size, InvalidArgument, "[world] expected all ",
           request.place.size, " workers on one host for the transport 'shm', got ", request.place.local_size,
           " on this one");
  ShmOptions options;
  options.timeout_ms = options.join_timeout_ms = request.timeout_ms;
  options.host = request.host;
  options.noticed_loss = request.noticed_loss;
  options.noticed_timeout = request.noticed_timeout;
  options.explain_loss = request.explain_loss;
  options.check = request.check;
  return make_shm_communicator(request.place.rank, request.place.size, *request.rendezvous,
                               epoch_key(request.place.epoch, "shm/" + request.key), options);
}

std::shared_ptr<Communicator> make_module_group(const std::string& module, const GroupRequest& request) {
  ModuleRequest made;
  made.place = request.place;
  made.rendezvous = request.rendezvous.get();
  made.key = epoch_key(request.place.epoch, module + "/" + request.key);
  made.timeout_ms = request.timeout_ms;
  Module& loaded = load_module(module);
  if (module == "nccl" && request.place.size > 1)
    made.messages = connect_group(request, "calls/" + request.key);
  return loaded.make(made);
}

constexpr NamedTransport kTransports[] = {
    {"shm", make_shm_group},
    {"tcp", make_tcp_group},
    {"shm+tcp", make_hosts_group},
    {"mpi", [](const GroupRequest& request) { return make_module_group("mpi", request); }},
    {"nccl", [](const GroupRequest& request) { return make_module_group("nccl", request); }},
};

}  // namespace

GroupMaker find_transport(const std::string& name) {
  std::string known = "auto";
  for (const NamedTransport& transport : kTransports) {
    if (name == transport.name) return transport.make;
    known += std::string(", ") + transport.name;
  }
  throw InvalidArgument(mx::detail::concat("[world] expected a transport among ", known, ", got '", name,
                                           "' (from MX_TRANSPORT or new_group())"));
}

}  // namespace mx::comm
