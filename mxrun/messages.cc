#include "mxrun/messages.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "comm/deadline.h"
#include "engine/base/check.h"
#include "mxrun/json_values.h"

namespace mx::launch {
namespace {

using nlohmann::json;

constexpr int kLastSignal = 64, kLargestCode = 255;
constexpr size_t kLongestHost = 255, kLongestJob = 64;

/// Returns the kind that the member "op" names.
template <class Op, size_t n>
Op op_of(const json& message, const std::pair<std::string_view, Op> (&known)[n]) {
  const std::string name = text_of(message, "op");
  for (const auto& [op_name, op] : known)
    if (name == op_name) return op;
  throw ProtocolError("'op': expected the name of a message");
}

Role role_number(const json& message) { return static_cast<Role>(number_of(message, "role", 0, 1)); }

FromAgent read_from_agent(const json& message) {
  using Op = FromAgent::Op;
  constexpr std::pair<std::string_view, Op> kKnown[] = {
      {"hello", Op::hello},   {"started", Op::started},           {"exited", Op::exited},
      {"failed", Op::failed}, {"asked_to_end", Op::asked_to_end}, {"ended", Op::ended},
      {"pong", Op::pong}};
  FromAgent got;
  got.op = op_of(message, kKnown);
  if (got.op == Op::hello) got.host = name_of(message, "host", kLongestHost);
  if (got.op == Op::hello || got.op == Op::started) got.pid = number_of(message, "pid", 1, INT_MAX);
  if (got.op == Op::started || got.op == Op::exited || got.op == Op::failed) {
    got.role = role_number(message);
    got.rank = number_of(message, "rank", got.op == Op::failed ? -1 : 0, kMostProcesses);
  }
  if (got.op == Op::exited || got.op == Op::failed)
    got.code = number_of(message, "code", got.op == Op::failed ? 1 : 0, kLargestCode);
  if (got.op == Op::exited || got.op == Op::asked_to_end)
    got.signal = number_of(message, "signal", got.op == Op::exited ? 0 : 1, kLastSignal);
  if (got.op == Op::exited)
    for (const json& line : list_of(message, "tail")) got.tail.push_back(text_value(line, "tail"));
  if (got.op == Op::failed) {
    got.problem = text_of(message, "problem");
    got.lasting = flag_of(message, "lasting");
  }
  if (got.op == Op::ended) got.left = flag_of(message, "left");
  return got;
}

ToAgent read_to_agent(const json& message) {
  using Op = ToAgent::Op;
  constexpr std::pair<std::string_view, Op> kKnown[] = {{"run", Op::run},
                                                        {"signal", Op::signal},
                                                        {"stop", Op::stop},
                                                        {"kill", Op::kill},
                                                        {"kill_process", Op::kill_process},
                                                        {"reader_gone", Op::reader_gone},
                                                        {"ping", Op::ping},
                                                        {"bye", Op::bye}};
  ToAgent got;
  got.op = op_of(message, kKnown);
  if (got.op == Op::run) got.plan = plan_from_json(text_of(message, "plan"));
  if (got.op == Op::signal) got.signal = number_of(message, "number", 1, kLastSignal);
  if (got.op == Op::stop) {
    got.signal = number_of(message, "first", 1, kLastSignal);
    got.grace_ms = number_of<int64_t>(message, "grace_ms", 0, comm::kLongestTimeoutMs);
    got.servers_only = flag_of(message, "servers");
  }
  if (got.op == Op::reader_gone) got.of_error = flag_of(message, "error");
  if (got.op == Op::kill_process) {
    got.role = role_number(message);
    got.rank = number_of(message, "rank", 0, kMostProcesses);
  }
  return got;
}

JobStatus::Process read_process(const json& from) {
  constexpr std::string_view kStates[] = {"starting", "running", "ended", "failed"};
  JobStatus::Process process;
  const std::string role = text_of(from, "role");
  MX_CHECK(role == "worker" || role == "server", ProtocolError, "'role': expected worker or server");
  process.role = role == "server" ? Role::server : Role::worker;
  process.rank = number_of(from, "rank", 0, kMostProcesses);
  process.node = number_of(from, "node", 0, kMostProcesses);
  process.pid = number_of(from, "pid", -1, INT_MAX);
  process.step = number_of<int64_t>(from, "step", -1, INT64_MAX);
  process.host = name_of(from, "host", kLongestHost);
  process.state = text_of(from, "state");
  MX_CHECK(std::find(std::begin(kStates), std::end(kStates), process.state) != std::end(kStates),
           ProtocolError, "'state': expected the state of a process");
  return process;
}

JobStatus read_status(const json& from) {
  JobStatus status;
  status.job = name_of(from, "job", kLongestJob);
  const json& elapsed = member(from, "elapsed");
  status.elapsed_s = elapsed.is_number() ? elapsed.get<double>() : -1;
  MX_CHECK(std::isfinite(status.elapsed_s) && status.elapsed_s >= 0, ProtocolError,
           "'elapsed': expected a number of seconds");
  status.restarts = number_of<int64_t>(from, "restarts", 0, INT64_MAX);
  for (const json& process : list_of(from, "processes")) status.processes.push_back(read_process(process));
  return status;
}

}  // namespace

FromAgent message_from_agent(const std::string& text) {
  return read_json(text, "a message of an agent", read_from_agent);
}

ToAgent message_to_agent(const std::string& text) {
  return read_json(text, "a message of mxrun", read_to_agent);
}

JobStatus job_status(const std::string& text) { return read_json(text, "the status of a job", read_status); }

}  // namespace mx::launch
