// connect_group(), and the communicators "tcp" and "shm+tcp".

#include <memory>
#include <string>
#include <utility>

#include "comm/hosts/connect.h"
#include "comm/hosts/machine.h"
#include "comm/tcp/connect.h"
#include "comm/transport_communicator.h"
#include "comm/transports.h"

namespace mx::comm {

namespace {

using Connect = std::unique_ptr<TcpTransport> (*)(const TcpGroup& group, Rendezvous& rendezvous,
                                                  Deadline deadline, TcpOptions options);

std::unique_ptr<Transport> connect_by(Connect connect, const GroupRequest& request, const std::string& key) {
  TcpGroup group;
  group.rank = request.place.rank;
  group.size = request.place.size;
  group.key = key;
  group.address = request.address;
  group.host = request.host;
  group.machine = machine_of(request.host);
  group.self = request.self;
  group.check = request.check;
  TcpOptions options;
  options.explain_loss = request.explain_loss;
  options.noticed_timeout = request.noticed_timeout;
  return connect(group, *request.rendezvous, Deadline::after_ms(request.timeout_ms), std::move(options));
}

std::shared_ptr<Communicator> make_connected_group(const GroupRequest& request, Connect connect) {
  return std::make_shared<TransportCommunicator>(connect_by(connect, request, request.key),
                                                 request.timeout_ms);
}

}  // namespace

std::unique_ptr<Transport> connect_group(const GroupRequest& request, const std::string& key) {
  return connect_by(connect_tcp, request, key);
}

std::shared_ptr<Communicator> make_tcp_group(const GroupRequest& request) {
  return make_connected_group(request, connect_tcp);
}

std::shared_ptr<Communicator> make_hosts_group(const GroupRequest& request) {
  return make_connected_group(request, connect_hosts);
}

}  // namespace mx::comm
