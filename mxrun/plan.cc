#include "mxrun/plan.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "engine/base/check.h"
#include "mxrun/hosts/text.h"

namespace mx::launch {
namespace {

using nlohmann::json;

// JSON strings must be UTF-8, which arguments, paths and variables need not be.
std::string hex_text(const std::string& bytes) { return text::hexadecimal(bytes); }

std::string hex_bytes(const std::string& digits) {
  std::optional<std::string> bytes = text::from_hexadecimal(digits);
  MX_CHECK(bytes, ProtocolError, "expected hexadecimal digits");
  return *std::move(bytes);
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

NodePlan plan_from_json(const std::string& text) {
  try {
    const json from = json::parse(text);
    NodePlan plan;
    from.at("job").get_to(plan.job);
    from.at("node").get_to(plan.node);
    from.at("nodes").get_to(plan.nodes);
    from.at("host").get_to(plan.host);
    for (const json& argument : from.at("argv")) plan.argv.push_back(hex_bytes(argument));
    plan.folder = hex_bytes(from.at("folder"));
    for (const json& variable : from.at("environment")) {
      plan.environment.emplace_back(hex_bytes(variable.at(0)), hex_bytes(variable.at(1)));
    }
    for (const json& rank : from.at("ranks")) {
      plan.ranks.push_back({static_cast<Role>(rank.at(0).get<int>()), rank.at(1).get<int>(),
                            rank.at(2).get<int>(), rank.at(3).get<int64_t>()});
    }
    from.at("workers").get_to(plan.workers);
    from.at("servers").get_to(plan.servers);
    from.at("local_workers").get_to(plan.local_workers);
    from.at("local_servers").get_to(plan.local_servers);
    from.at("bind").get_to(plan.bind);
    from.at("epoch").get_to(plan.epoch);
    from.at("restarts").get_to(plan.restarts);
    from.at("rendezvous").get_to(plan.rendezvous);
    from.at("master_port").get_to(plan.master_port);
    plan.secret = hex_bytes(from.at("secret"));
    from.at("timeout_ms").get_to(plan.timeout_ms);
    from.at("heartbeat_ms").get_to(plan.heartbeat_ms);
    from.at("dead_after_ms").get_to(plan.dead_after_ms);
    from.at("grace_ms").get_to(plan.grace_ms);
    from.at("tag").get_to(plan.output.tag);
    from.at("timestamp").get_to(plan.output.timestamp);
    plan.output.log_dir = hex_bytes(from.at("log_dir"));
    from.at("tee").get_to(plan.output.tee);
    from.at("shown").get_to(plan.output.shown);
    return plan;
  } catch (const std::exception& error) {
    throw ProtocolError(mx::detail::concat("[mxrun] expected the plan of a node, got ", text.substr(0, 80),
                                           " (", error.what(), ")"));
  }
}

}  // namespace mx::launch
