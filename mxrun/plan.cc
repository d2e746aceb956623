#include "mxrun/plan.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "comm/deadline.h"
#include "comm/net/handshake.h"
#include "engine/base/check.h"
#include "mxrun/hosts/text.h"
#include "mxrun/json_values.h"

namespace mx::launch {
namespace {

using nlohmann::json;

// JSON strings must be UTF-8, which arguments, paths and variables need not be.
std::string hex_text(const std::string& bytes) { return text::hexadecimal(bytes); }

std::string bytes_value(const json& value, const char* name) {
  std::optional<std::string> bytes = text::from_hexadecimal(text_value(value, name));
  MX_CHECK(bytes, ProtocolError, "'", name, "': expected hexadecimal digits");
  return *std::move(bytes);
}

// Arguments, paths and variables are passed to the system, for which a zero byte ends them.
std::string system_value(const json& value, const char* name) {
  std::string text = bytes_value(value, name);
  MX_CHECK(text.find('\0') == std::string::npos, ProtocolError, "'", name, "': expected no zero bytes");
  return text;
}

RankPlan read_rank(const json& values, const NodePlan& plan) {
  tuple(values, 4, "ranks");
  RankPlan rank;
  rank.role = static_cast<Role>(whole_number(values[0], "role", 0, 1));
  const bool server = rank.role == Role::server;
  rank.rank =
      static_cast<int>(whole_number(values[1], "rank", 0, (server ? plan.servers : plan.workers) - 1));
  rank.local_rank = static_cast<int>(
      whole_number(values[2], "local rank", 0, (server ? plan.local_servers : plan.local_workers) - 1));
  rank.incarnation = whole_number(values[3], "incarnation", 0, std::numeric_limits<int64_t>::max());
  return rank;
}

void read_output(const json& from, OutputPlan& output) {
  output.tag = flag_of(from, "tag");
  output.timestamp = flag_of(from, "timestamp");
  output.log_dir = system_value(member(from, "log_dir"), "log_dir");
  output.tee = flag_of(from, "tee");
  for (const json& rank : list_of(from, "shown"))
    output.shown.push_back(static_cast<int>(whole_number(rank, "shown", 0, kMostProcesses)));
}

void read_tls(const json& from, comm::TlsSettings& tls) {
  constexpr auto kMostKeys = static_cast<int>(comm::TlsKeys::certificates);
  tls.keys = static_cast<comm::TlsKeys>(number_of(from, "tls", 0, kMostKeys));
  const json& files = tuple(member(from, "tls_files"), 3, "tls_files");
  tls.certificate = system_value(files[0], "tls_files");
  tls.key = system_value(files[1], "tls_files");
  tls.authority = system_value(files[2], "tls_files");
}

void read_limits(const json& from, NodePlan& plan) {
  const auto ms = [&](const char* name, int64_t least) {
    return number_of<int64_t>(from, name, least, comm::kLongestTimeoutMs);
  };
  plan.timeout_ms = ms("timeout_ms", 1);
  plan.heartbeat_ms = ms("heartbeat_ms", 1);
  plan.dead_after_ms = ms("dead_after_ms", 0);
  plan.grace_ms = ms("grace_ms", 0);
}

NodePlan read_plan(const json& from) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  constexpr size_t kLongestName = 255, kLongestAddress = 300;
  NodePlan plan;
  plan.job = name_of(from, "job", comm::Identity::kLongestJob);
  plan.nodes = number_of(from, "nodes", 1, kMostProcesses);
  plan.node = number_of(from, "node", 0, plan.nodes - 1);
  plan.host = name_of(from, "host", kLongestName);
  for (const json& argument : list_of(from, "argv")) plan.argv.push_back(system_value(argument, "argv"));
  MX_CHECK(!plan.argv.empty(), ProtocolError, "'argv': expected a program");
  plan.folder = system_value(member(from, "folder"), "folder");
  for (const json& variable : list_of(from, "environment")) {
    tuple(variable, 2, "environment");
    std::string name = system_value(variable[0], "environment");
    MX_CHECK(!name.empty() && name.find('=') == std::string::npos, ProtocolError,
             "'environment': expected names of variables");
    plan.environment.emplace_back(std::move(name), system_value(variable[1], "environment"));
  }
  plan.workers = number_of(from, "workers", 1, kMostProcesses);
  plan.servers = number_of(from, "servers", 0, kMostProcesses);
  plan.local_workers = number_of(from, "local_workers", 0, plan.workers);
  plan.local_servers = number_of(from, "local_servers", 0, plan.servers);
  for (const json& rank : list_of(from, "ranks")) plan.ranks.push_back(read_rank(rank, plan));
  plan.bind = flag_of(from, "bind");
  plan.epoch = number_of<int64_t>(from, "epoch", 0, kMost);
  plan.restarts = number_of<int64_t>(from, "restarts", 0, kMost);
  plan.rendezvous = name_of(from, "rendezvous", kLongestAddress);
  plan.master_port = number_of(from, "master_port", 0, 65535);
  plan.secret = bytes_value(member(from, "secret"), "secret");
  read_tls(from, plan.tls);
  read_limits(from, plan);
  read_output(from, plan.output);
  return plan;
}

}  // namespace

std::string process_name(Role role, int rank) {
  return (role == Role::server ? "server " : "rank ") + std::to_string(rank);
}

std::string to_json(const NodePlan& plan) {
  json ranks = json::array();
  for (const RankPlan& rank : plan.ranks) {
    ranks.push_back({static_cast<int>(rank.role), rank.rank, rank.local_rank, rank.incarnation});
  }
  json argv = json::array(), environment = json::array();
  for (const std::string& argument : plan.argv) argv.push_back(hex_text(argument));
  for (const auto& [name, value] : plan.environment) {
    environment.push_back({hex_text(name), hex_text(value)});
  }
  const OutputPlan& output = plan.output;
  return json{
      {"job", plan.job},
      {"node", plan.node},
      {"nodes", plan.nodes},
      {"host", plan.host},
      {"argv", argv},
      {"folder", hex_text(plan.folder)},
      {"environment", environment},
      {"ranks", ranks},
      {"workers", plan.workers},
      {"servers", plan.servers},
      {"local_workers", plan.local_workers},
      {"local_servers", plan.local_servers},
      {"bind", plan.bind},
      {"epoch", plan.epoch},
      {"restarts", plan.restarts},
      {"rendezvous", plan.rendezvous},
      {"master_port", plan.master_port},
      {"secret", hex_text(plan.secret)},
      {"tls", static_cast<int>(plan.tls.keys)},
      {"tls_files", {hex_text(plan.tls.certificate), hex_text(plan.tls.key), hex_text(plan.tls.authority)}},
      {"timeout_ms", plan.timeout_ms},
      {"heartbeat_ms", plan.heartbeat_ms},
      {"dead_after_ms", plan.dead_after_ms},
      {"grace_ms", plan.grace_ms},
      {"tag", output.tag},
      {"timestamp", output.timestamp},
      {"log_dir", hex_text(output.log_dir)},
      {"tee", output.tee},
      {"shown", output.shown},
  }
      .dump();
}

NodePlan plan_from_json(const std::string& text) { return read_json(text, "the plan of a node", read_plan); }

}  // namespace mx::launch
