#include "mxrun/launcher.h"

#include <string>
#include <vector>

namespace mx::launch {

std::vector<std::string> AgentCommand::line(int node, bool secret_from_input) const {
  std::vector<std::string> line{program, "--agent", "--job-id", job, "--rdzv", rendezvous};
  line.insert(line.end(), {"--agent-node", node < 0 ? "auto" : std::to_string(node)});
  line.insert(line.end(), {"--heartbeat", std::to_string(heartbeat_ms) + "ms", "--dead-after",
                           std::to_string(dead_after_ms) + "ms"});
  if (tls.keys == comm::TlsKeys::secret) line.push_back("--tls");
  if (tls.keys == comm::TlsKeys::certificates)
    line.insert(line.end(), {"--tls-cert", tls.certificate, "--tls-key", tls.key, "--tls-ca", tls.authority});
  if (secret_from_input) {
    line.push_back("--secret-stdin");
  } else if (!secret_file.empty()) {
    line.insert(line.end(), {"--secret-file", secret_file});
  }
  return line;
}

}  // namespace mx::launch
