// make_tcp_group(): the communicator "tcp".

#include <memory>
#include <utility>

#include "comm/tcp/connect.h"
#include "comm/transport_communicator.h"
#include "comm/transports.h"

namespace mx::comm {

std::shared_ptr<Communicator> make_tcp_group(const GroupRequest& request) {
  TcpGroup group;
  group.rank = request.place.rank;
  group.size = request.place.size;
  group.key = request.key;
  group.address = request.address;
  group.host = request.host;
  group.self = request.self;
  group.check = request.check;
  TcpOptions options;
  options.explain_loss = request.explain_loss;
  options.noticed_timeout = request.noticed_timeout;
  auto transport =
      connect_tcp(group, *request.rendezvous, Deadline::after_ms(request.timeout_ms), std::move(options));
  return std::make_shared<TransportCommunicator>(std::move(transport), request.timeout_ms);
}

}  // namespace mx::comm
