// The conformance suite over a table in this process and over the embedded server.
#include <memory>

#include "comm/net/tls.h"
#include "comm/rendezvous/client.h"
#include "comm/rendezvous/local.h"
#include "comm/rendezvous/server.h"
#include "tests/comm/rendezvous/conformance.h"

namespace mx::comm {
namespace {

ConnectRendezvous local_table() {
  return [table = make_local_rendezvous()] { return table; };
}

ConnectRendezvous embedded_table(std::shared_ptr<const TlsContext> tls) {
  const Identity self{"job", "secret", 0, -1, "", std::move(tls)};
  auto server = std::make_shared<RendezvousServer>(RendezvousServerOptions{.self = self});
  return [server, self] {
    RendezvousClientOptions options;
    options.address = server->address();
    options.self = self;
    options.host = "here";
    return std::make_shared<RendezvousClient>(options, Deadline::after_ms(30000));
  };
}

ConnectRendezvous embedded_table_with_tls() {
  return embedded_table(
      std::make_shared<const TlsContext>(TlsSettings{.keys = TlsKeys::secret, .records_per_key = 3}));
}

TEST(EpochKey, BeginsWithTheEpoch) { EXPECT_EQ(epoch_key(3, "address/1"), "3/address/1"); }

INSTANTIATE_TEST_SUITE_P(All, RendezvousConformance,
                         ::testing::Values(RendezvousCase{"local", local_table},
                                           RendezvousCase{"embedded", [] { return embedded_table(nullptr); }},
                                           RendezvousCase{"embedded_tls", embedded_table_with_tls}),
                         rendezvous_name);

}  // namespace
}  // namespace mx::comm
