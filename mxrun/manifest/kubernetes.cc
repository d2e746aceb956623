#include "mxrun/manifest/kubernetes.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "mxrun/hosts/text.h"
#include "mxrun/manifest/yaml.h"

namespace mx::launch {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kSecretFolder[] = "/etc/mxrun";
constexpr char kSecretKey[] = "secret";

bool is_dns_label(std::string_view name) {
  const auto word = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  if (name.empty() || name.size() > 63 || !word(name.front()) || !word(name.back())) return false;
  return std::all_of(name.begin(), name.end(), [&](char c) { return word(c) || c == '-'; });
}

/// A Secret or a Service account may have dots.
bool is_dns_name(std::string_view name) {
  for (size_t at = 0; at <= name.size();) {
    const size_t end = std::min(name.find('.', at), name.size());
    if (!is_dns_label(name.substr(at, end - at))) return false;
    at = end + 1;
  }
  return name.size() <= 253;
}

/// A quantity of Kubernetes: "2", "0.5", "500m", "4Gi", "1e3".
bool is_quantity(std::string_view text) {
  size_t at = 0;
  bool has_digit = false, has_point = false;
  for (; at < text.size(); ++at) {
    if (text[at] == '.' && !has_point)
      has_point = true;
    else if (text[at] >= '0' && text[at] <= '9')
      has_digit = true;
    else
      break;
  }
  const std::string_view suffix = text.substr(at);
  constexpr std::string_view kSuffixes[] = {"",  "m",  "k",  "M",  "G",  "T",  "P",
                                            "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};
  return has_digit && std::find(std::begin(kSuffixes), std::end(kSuffixes), suffix) != std::end(kSuffixes);
}

bool is_variable_name(std::string_view name) {
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name.front()))) return false;
  return std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-' || c == '.'; });
}

/// Kubernetes replaces $(NAME) in arguments and values, and $$ by $.
std::string unexpanded(const std::string& value) {
  std::string out;
  for (char c : value) {
    if (c == '$') out += '$';
    out += c;
  }
  return out;
}

void check_manifest_options(const ManifestOptions& o) {
  const auto require = [](bool good, const char* setting, const char* expected, std::string_view got) {
    MX_CHECK(good, InvalidArgument, "[mxrun] --k8s ", setting, ": expected ", expected, ", got ",
             text::quoted(got));
  };
  // A pod's host name is "<name>-workers-0-<index>", of at most 63 characters.
  require(is_dns_label(o.name) && o.name.size() <= 40, "name",
          "at most 40 small letters, digits and '-' (see --job-id)", o.name);
  require(o.name_space.empty() || is_dns_label(o.name_space), "namespace", "small letters, digits and '-'",
          o.name_space);
  require(!o.image.empty() && o.image.find_first_of(" \t\n\"'\\") == std::string::npos, "image",
          "the name of a container image that contains the program, as --k8s image=NAME", o.image);
  require(o.secret.empty() || is_dns_name(o.secret), "secret", "the name of a Secret", o.secret);
  require(is_quantity(o.cpu), "cpu", "a quantity such as 2 or 500m", o.cpu);
  require(is_quantity(o.memory), "memory", "a quantity such as 4Gi", o.memory);
  require(o.port >= 1 && o.port <= 65535, "port", "1 to 65535", std::to_string(o.port));
  require(o.gpus >= 0, "gpus", "a number", std::to_string(o.gpus));
  MX_CHECK(!o.argv.empty(), InvalidArgument, "[mxrun] expected a program, got none");
  MX_CHECK(o.workers >= 1 && o.servers >= 0, InvalidArgument,
           "[mxrun] expected at least 1 process and 0 servers, got ", o.workers, " and ", o.servers);
  for (const auto& [name, value] : o.environment)
    MX_CHECK(is_variable_name(name), InvalidArgument, "[mxrun] -x: expected the name of a variable, got ",
             text::quoted(name));
}

bool is_jobset(const ManifestOptions& o) { return o.jobset || o.servers > 0; }

std::string secret_name(const ManifestOptions& o) { return o.secret.empty() ? o.name + "-secret" : o.secret; }

/// "host:port" of the first worker.
std::string rendezvous_of(const ManifestOptions& o) {
  return mx::detail::concat(o.name, is_jobset(o) ? "-workers-0-0." : "-0.", o.name, ":", o.port);
}

Json metadata(const ManifestOptions& o, const std::string& name) {
  Json data = {{"name", name}};
  if (!o.name_space.empty()) data["namespace"] = o.name_space;
  data["labels"] = {{"app.kubernetes.io/managed-by", "mxrun"}, {"mxrun/job", o.name}};
  return data;
}

Json container_environment(const ManifestOptions& o, const std::string& role) {
  std::vector<std::pair<std::string, std::string>> own = {
      {"MX_ROLE", role},
      {"MX_WORLD_SIZE", std::to_string(o.workers)},
      {"MX_NUM_SERVERS", std::to_string(o.servers)},
      {"MX_JOB_ID", o.name},
      {"MX_RDZV", rendezvous_of(o)},
      {"MX_INTERFACE", o.interface},
      {"MX_SECRET_FILE", mx::detail::concat(kSecretFolder, "/", kSecretKey)},
      {"MX_TIMEOUT_MS", std::to_string(o.timeout_ms)},
      {"MX_HEARTBEAT_MS", std::to_string(o.heartbeat_ms)},
      {"MX_DEAD_AFTER_MS", std::to_string(o.dead_after_ms)}};
  if (o.tls) own.emplace_back("MX_TLS", "psk");
  // Of two entries with one name Kubernetes takes the last. So each name has one entry here.
  std::map<std::string, std::string> given;
  for (const auto& [name, value] : o.environment) given[name] = value;
  Json list = Json::array();
  const auto add = [&](const std::string& name, const std::string& value) {
    list.push_back({{"name", name}, {"value", unexpanded(value)}});
  };
  for (const auto& [name, value] : given) add(name, value);
  for (const auto& [name, value] : own) {
    if (given.count(name) == 0) {
      add(name, value);
      continue;
    }
    MX_CHECK(name == "MX_INTERFACE", InvalidArgument,
             "[mxrun] -x: expected a variable that the manifests do not set, got ", name);
  }
  return list;
}

Json container(const ManifestOptions& o, const std::string& role) {
  Json command = Json::array();
  for (const std::string& argument : o.argv) command.push_back(unexpanded(argument));
  Json resources = {{"cpu", o.cpu}, {"memory", o.memory}};
  if (o.gpus > 0 && role == "worker") resources["nvidia.com/gpu"] = std::to_string(o.gpus);
  Json made = {{"name", role}, {"image", o.image}, {"command", command}};
  made["env"] = container_environment(o, role);
  made["ports"] = Json::array({{{"name", "rendezvous"}, {"containerPort", o.port}, {"protocol", "TCP"}}});
  made["resources"] = {{"requests", resources}, {"limits", resources}};
  made["securityContext"] = {{"allowPrivilegeEscalation", false},
                             {"capabilities", {{"drop", Json::array({"ALL"})}}}};
  made["volumeMounts"] =
      Json::array({{{"name", "secret"}, {"mountPath", kSecretFolder}, {"readOnly", true}}});
  return made;
}

/// The specification of the Job of one role.
Json job_specification(const ManifestOptions& o, const std::string& role, int pods) {
  Json pod = {{"restartPolicy", "Never"}};
  if (!is_jobset(o)) pod["subdomain"] = o.name;
  pod["terminationGracePeriodSeconds"] = std::max<int64_t>(1, (o.grace_ms + 999) / 1000);
  pod["automountServiceAccountToken"] = false;
  pod["containers"] = Json::array({container(o, role)});
  // 384 is 0600.
  pod["volumes"] =
      Json::array({{{"name", "secret"}, {"secret", {{"secretName", secret_name(o)}, {"defaultMode", 384}}}}});
  const Json labels = {{"mxrun/job", o.name}, {"mxrun/role", role}};
  return {{"completionMode", "Indexed"},
          {"completions", pods},
          {"parallelism", pods},
          {"backoffLimit", 0},
          {"template", {{"metadata", {{"labels", labels}}}, {"spec", pod}}}};
}

Json headless_service(const ManifestOptions& o) {
  return {{"apiVersion", "v1"},
          {"kind", "Service"},
          {"metadata", metadata(o, o.name)},
          {"spec",
           {{"clusterIP", "None"},
            // Pods look each other up before they are ready.
            {"publishNotReadyAddresses", true},
            {"selector", {{"mxrun/job", o.name}}},
            {"ports", Json::array({{{"name", "rendezvous"}, {"port", o.port}, {"protocol", "TCP"}}})}}}};
}

Json indexed_job(const ManifestOptions& o) {
  return {{"apiVersion", "batch/v1"},
          {"kind", "Job"},
          {"metadata", metadata(o, o.name)},
          {"spec", job_specification(o, "worker", o.workers)}};
}

Json job_set(const ManifestOptions& o) {
  Json jobs = Json::array();
  const auto add = [&](const std::string& role, int pods) {
    jobs.push_back(
        {{"name", role + "s"}, {"replicas", 1}, {"template", {{"spec", job_specification(o, role, pods)}}}});
  };
  add("worker", o.workers);
  if (o.servers > 0) add("server", o.servers);
  return {{"apiVersion", "jobset.x-k8s.io/v1alpha2"},
          {"kind", "JobSet"},
          {"metadata", metadata(o, o.name)},
          {"spec",
           {{"network",
             {{"enableDNSHostnames", true}, {"subdomain", o.name}, {"publishNotReadyAddresses", true}}},
            // The servers do not end by themselves: the job has succeeded when its workers have.
            {"successPolicy", {{"operator", "All"}, {"targetReplicatedJobs", Json::array({"workers"})}}},
            {"failurePolicy", {{"maxRestarts", 0}}},
            {"replicatedJobs", jobs}}}};
}

int number_setting(std::string_view key, std::string_view value) {
  const std::optional<int> number = text::parse_number(value);
  MX_CHECK(number, InvalidArgument, "[mxrun] --k8s ", key, ": expected a number, got ", text::quoted(value));
  return *number;
}

}  // namespace

void read_kubernetes_settings(const std::string& settings, ManifestOptions& o) {
  const std::string_view all = settings;
  for (size_t at = 0; at <= all.size();) {
    const size_t end = std::min(all.find(',', at), all.size());
    const std::string_view item = text::trimmed(all.substr(at, end - at));
    at = end + 1;
    const size_t equal = item.find('=');
    MX_CHECK(equal != std::string_view::npos && equal > 0, InvalidArgument,
             "[mxrun] --k8s: expected settings as 'image=NAME,cpu=2', got ", text::quoted(settings));
    const std::string_view key = item.substr(0, equal), value = item.substr(equal + 1);
    MX_CHECK(!value.empty(), InvalidArgument, "[mxrun] --k8s ", key, ": expected a value, got none");
    if (key == "image") {
      o.image = value;
    } else if (key == "namespace") {
      o.name_space = value;
    } else if (key == "name") {
      o.name = value;
    } else if (key == "interface") {
      o.interface = value;
    } else if (key == "secret") {
      o.secret = value;
    } else if (key == "cpu") {
      o.cpu = value;
    } else if (key == "memory") {
      o.memory = value;
    } else if (key == "gpus") {
      o.gpus = number_setting(key, value);
    } else if (key == "port") {
      o.port = number_setting(key, value);
    } else if (key == "kind") {
      MX_CHECK(value == "job" || value == "jobset", InvalidArgument,
               "[mxrun] --k8s kind: expected 'job' or 'jobset', got ", text::quoted(value));
      o.jobset = value == "jobset";
    } else {
      throw InvalidArgument(
          mx::detail::concat("[mxrun] --k8s: expected image, namespace, name, kind, port, interface, secret, "
                             "cpu, memory or gpus, "
                             "got ",
                             text::quoted(key)));
    }
  }
}

std::string command_for_secret(const ManifestOptions& options) {
  const std::string in = options.name_space.empty() ? "" : " -n " + options.name_space;
  return mx::detail::concat("openssl rand -hex 32 | kubectl", in, " create secret generic ",
                            secret_name(options), " --from-file=", kSecretKey, "=/dev/stdin");
}

std::string kubernetes_manifests(const ManifestOptions& options) {
  check_manifest_options(options);
  const std::string header = mx::detail::concat(
      "# Create the secret of the job once:\n#   ", command_for_secret(options),
      "\n# then pipe this to: kubectl apply -f -\n",
      is_jobset(options) ? "# The cluster needs the JobSet controller: https://jobset.sigs.k8s.io\n" : "");
  std::vector<Json> documents;
  if (is_jobset(options))
    documents = {job_set(options)};
  else
    documents = {headless_service(options), indexed_job(options)};
  return header + to_yaml(documents);
}

}  // namespace mx::launch
