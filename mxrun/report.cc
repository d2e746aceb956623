#include "mxrun/report.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "mxrun/hosts/text.h"
#include "mxrun/old_logs.h"
#include "mxrun/write_all.h"

namespace mx::launch {
namespace {

using nlohmann::json;

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string utc_now() { return text::time_now(text::Zone::utc) + "Z"; }

std::string text_of(const json& value, int indent = -1) {
  return value.dump(indent, ' ', false, json::error_handler_t::replace);
}

json json_of(const Failure& failure) {
  json result{{"node", failure.node},
              {"host", failure.host},
              {"code", failure.code},
              {"signal", failure.signal},
              {"reason", failure.reason}};
  if (failure.rank >= 0) {
    result.update({{"role", role_name(failure.role)},
                   {"rank", failure.rank},
                   {"pid", failure.pid},
                   {"stderr", failure.tail}});
  }
  return result;
}

/// Returns the first names with commas between them, and how many there are more.
std::string first_of(const std::vector<std::string>& names) {
  constexpr size_t kMost = 8;
  std::string text;
  for (size_t i = 0; i < names.size() && i < kMost; ++i) text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kMost) text += " and " + std::to_string(names.size() - kMost) + " more";
  return text;
}

/// Replaces whatever has this name by a new file, and follows no link. Returns false, with errno, if that
/// fails.
bool write_new_file(const std::string& path, const std::string& text) {
  unlink(path.c_str());
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (fd < 0) return false;
  const bool good = write_all(fd, text.data(), text.size());
  const int error = errno;
  if (close(fd) != 0) return false;  // some file systems tell only here that the disk is full
  errno = error;
  return good;
}

std::string signal_name(int number) {
  const char* name = sigabbrev_np(number);
  return name != nullptr ? std::string("SIG") + name : std::to_string(number);
}

json json_of(const ProcessRecord& process) {
  json result{{"role", role_name(process.role)},
              {"rank", process.rank},
              {"node", process.node},
              {"epoch", process.epoch},
              {"incarnation", process.incarnation},
              {"pid", process.pid},
              {"started", process.started}};
  if (process.ended) {
    result.update({{"code", process.code}, {"signal", process.signal}, {"ended", process.finished}});
  }
  return result;
}

}  // namespace

const char* role_name(Role role) { return role == Role::server ? "server" : "worker"; }

std::string failure_block(const Failure& failure, const std::vector<std::string>& early,
                          const std::vector<std::string>& also) {
  std::string what;
  if (failure.rank >= 0) {
    what = process_name(failure.role, failure.rank) + " on " + failure.host;
    if (failure.pid >= 0)
      what += " (node " + std::to_string(failure.node) + ", pid " + std::to_string(failure.pid) + ")";
  } else {
    what = "node " + std::to_string(failure.node) + " (" + failure.host + ")";
  }
  std::string how = failure.reason;
  if (failure.rank >= 0 && failure.signal > 0) {
    how += (how.empty() ? "" : "; ") + std::string("killed by ") + signal_name(failure.signal);
  } else if (how.empty()) {
    how = "exit code " + std::to_string(failure.code);
  }
  std::string text = "mxrun: first failure: " + what + ": " + how + "\n";
  if (!failure.tail.empty()) {
    text += "mxrun: the last lines of its standard error:\n";
    for (const std::string& line : failure.tail) text += "mxrun:   | " + line + "\n";
  }
  if (!early.empty()) {
    text += "mxrun: ended before that, with exit code 0: " + first_of(early) + "\n";
  }
  if (!also.empty()) text += "mxrun: failed afterwards: " + first_of(also) + "\n";
  return text;
}

struct Report::Line {
  json value;
};

Report::Report(const Options& options, const std::vector<NodePlan>& nodes)
    : options_(options), nodes_(nodes), begin_(utc_now()), begin_ns_(now_ns()) {
  if (!options.events.empty()) {
    events_ = open(options.events.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    MX_CHECK(events_ >= 0, InvalidArgument, "--events: cannot write ", options.events, ": ", strerror(errno));
  }
  if (!options.log_dir.empty()) {
    std::error_code error;
    std::filesystem::create_directories(options.log_dir, error);
    MX_CHECK(!error && access(options.log_dir.c_str(), W_OK) == 0, InvalidArgument,
             "--log-dir: cannot write into ", options.log_dir, ": ",
             error ? error.message() : strerror(errno));
  }
}

Report::~Report() {
  if (events_ >= 0) close(events_);
}

double Report::seconds() const { return static_cast<double>(now_ns() - begin_ns_) * 1e-9; }

void Report::say_lost(const std::string& path) {
  if (std::exchange(said_lost_, true)) return;
  std::fprintf(stderr, "mxrun: cannot write %s: %s\n", path.c_str(), strerror(errno));
}

void Report::write_line(const Line& line) {
  if (events_ < 0) return;
  json value = line.value;
  value["time"] = utc_now();
  value["seconds"] = seconds();
  const std::string text = text_of(value) + "\n";
  // One write per line, so that a reader sees whole lines. A full disk must not end the job.
  if (write(events_, text.data(), text.size()) == static_cast<ssize_t>(text.size())) return;
  say_lost(options_.events);
  close(std::exchange(events_, -1));
}

void Report::job_started(const std::string& launcher, const std::string& rendezvous) {
  launcher_ = launcher;
  rendezvous_ = rendezvous;
  if (!options_.log_dir.empty()) remove_old_logs(options_.log_dir);
  write_line({{{"event", "job_started"},
               {"job", options_.job},
               {"argv", options_.program},
               {"launcher", launcher},
               {"workers", nodes_[0].workers},
               {"servers", nodes_[0].servers},
               {"nodes", nodes_.size()}}});
  write_job("running", -1, {}, 0);
}

void Report::agent_ready(int node, const std::string& host, int64_t pid) {
  hosts_[node] = host;
  write_line({{{"event", "agent_ready"}, {"node", node}, {"host", host}, {"pid", pid}}});
}

void Report::started(const ProcessRecord& process) {
  json value = json_of(process);
  value["event"] = "started";
  write_line({value});
}

void Report::exited(const ProcessRecord& process) {
  json value = json_of(process);
  value["event"] = "exited";
  write_line({value});
}

void Report::failed(const Failure& failure) {
  json value = json_of(failure);
  failure_json_ = text_of(value);
  value["event"] = "failed";
  write_line({value});
}

void Report::signalled(int number) { write_line({{{"event", "signal"}, {"signal", number}}}); }

void Report::restarting(int64_t epoch, int64_t restarts) {
  write_line({{{"event", "restart"}, {"epoch", epoch}, {"restarts", restarts}}});
  write_job("running", -1, {},
            restarts);  // so that the next job knows of these logs even if this one is killed
}

void Report::job_ended(int exit_code, const std::string& result, const std::vector<ProcessRecord>& processes,
                       int64_t restarts) {
  write_line(
      {{{"event", "job_ended"}, {"exit_code", exit_code}, {"result", result}, {"restarts", restarts}}});
  write_job(result, exit_code, processes, restarts);
}

void Report::write_job(const std::string& result, int exit_code, const std::vector<ProcessRecord>& processes,
                       int64_t restarts) {
  if (options_.log_dir.empty()) return;
  json nodes = json::array(), all = json::array();
  for (const NodePlan& node : nodes_) {
    const auto named = hosts_.find(node.node);
    nodes.push_back({{"node", node.node},
                     {"name", node.host},
                     {"host", named != hosts_.end() ? named->second : ""},
                     {"workers", node.local_workers},
                     {"servers", node.local_servers}});
  }
  for (const ProcessRecord& process : processes) all.push_back(json_of(process));
  json job{{"job", options_.job},
           {"argv", options_.program},
           {"launcher", launcher_},
           {"folder", nodes_[0].folder},
           {"workers", nodes_[0].workers},
           {"servers", nodes_[0].servers},
           {"rendezvous", rendezvous_},
           {"begin", begin_},
           {"result", result},
           {"restarts", restarts},
           {"nodes", nodes},
           {"processes", all}};
  if (exit_code >= 0) {
    job.update({{"exit_code", exit_code}, {"end", utc_now()}, {"seconds", seconds()}});
  }
  if (!failure_json_.empty()) job["first_failure"] = json::parse(failure_json_);
  // Renamed into place, so that a reader never sees half a file.
  const std::string path = options_.log_dir + "/job.json", temporary = path + ".new";
  if (!write_new_file(temporary, text_of(job, 2) + "\n") || rename(temporary.c_str(), path.c_str()) != 0) {
    say_lost(path);
    unlink(temporary.c_str());
  }
}

}  // namespace mx::launch
