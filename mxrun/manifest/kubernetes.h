// Kubernetes manifests of a job, printed by `mxrun --launcher k8s --dry-run`.
//
// Each process is a pod of its own. Workers are an Indexed Job behind a headless Service; a job with servers
// is a JobSet, whose controller makes the Service. The programs find their rank in JOB_COMPLETION_INDEX, and
// pod 0 of the workers serves the rendezvous. The secret of the job is a Secret that the user creates; pods
// see it as a file that only its owner may read.
//
// Thread-safety: any thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace mx::launch {

struct ManifestOptions {
  std::string name;        ///< of the job: a DNS label of at most 40 characters
  std::string name_space;  ///< empty: that of kubectl
  std::string image;
  std::vector<std::string> argv;
  std::vector<std::pair<std::string, std::string>> environment;
  int workers = 1, servers = 0;
  bool jobset = false;  ///< a JobSet even without servers
  int port = 29500;     ///< of the rendezvous
  std::string interface = "eth0";
  std::string secret;                     ///< name of the Secret; empty: "<name>-secret"
  std::string cpu = "1", memory = "1Gi";  ///< quantities of Kubernetes, for each pod
  int gpus = 0;                           ///< for each pod
  bool tls = false;                       ///< the pods encrypt their connections, with keys from the secret
  int64_t timeout_ms = 60000, heartbeat_ms = 500, dead_after_ms = 5000, grace_ms = 10000;
};

/// Reads settings "KEY=VALUE,..." of --k8s into `options`: image, namespace, name, kind (job or jobset),
/// port, interface, secret, cpu, memory, gpus. Throws InvalidArgument naming the setting.
void read_kubernetes_settings(const std::string& settings, ManifestOptions& options);

/// Returns the manifests as YAML, with comments that say how to create the Secret and apply them. Throws
/// InvalidArgument if a setting is missing or malformed.
std::string kubernetes_manifests(const ManifestOptions& options);
/// The command that makes the Secret of the job.
std::string command_for_secret(const ManifestOptions& options);

}  // namespace mx::launch
