#include "mxrun/top.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/host_name.h"
#include "engine/base/check.h"
#include "engine/base/error.h"
#include "mxrun/exit_codes.h"
#include "mxrun/hosts/text.h"
#include "mxrun/messages.h"
#include "mxrun/report.h"
#include "mxrun/status_socket.h"
#include "mxrun/supervisor_parts.h"

namespace mx::launch {
namespace {

/// What a process of this machine has used.
struct Usage {
  double cpu_s = 0;
  int64_t memory_bytes = 0;
};

/// Reads /proc; nothing if there is no such process.
std::optional<Usage> usage_of(int64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const size_t name_end = text.rfind(')');  // the name before it may contain anything
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  double ticks = 0;
  int64_t pages = 0;
  // proc(5): the fields 14 and 15 are the times in user and system mode, 24 the resident pages.
  for (int number = 3; number <= 24 && fields >> field; ++number) {
    if (number == 14 || number == 15) ticks += std::stod(field);
    if (number == 24) pages = std::stoll(field);
  }
  return Usage{ticks / static_cast<double>(sysconf(_SC_CLK_TCK)), pages * sysconf(_SC_PAGESIZE)};
}

std::string decimal(double value, int digits) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  return text;
}

/// Makes tables, one after the other. Rates are those since the table before.
class TopTable {
 public:
  std::string next(const JobStatus& status) {
    const double now = status.elapsed_s;
    std::string text = status.job + ": " + decimal(now, 0) + " s";
    if (status.restarts > 0) text.append(", ").append(std::to_string(status.restarts)).append(" restarts");
    std::vector<Row> rows{
        {"ROLE", "RANK", "NODE", "HOST", "PID", "STATE", "STEP", "STEPS/S", "CPU %", "MEMORY MB"}};
    Samples samples;
    for (const JobStatus::Process& process : status.processes) rows.push_back(row(process, now, samples));
    before_ = std::move(samples);
    return text + "\n" + lines_of(rows);
  }

 private:
  static constexpr size_t kColumns = 10;
  using Row = std::array<std::string, kColumns>;
  struct Sample {
    double at = 0;
    int pid = -1;
    int64_t step = -1;
    std::optional<Usage> usage;
  };
  using Samples = std::map<std::pair<Role, int>, Sample>;

  Row row(const JobStatus::Process& process, double now, Samples& samples) {
    Sample sample{now, process.pid, process.step, {}};
    const bool running = process.state == "running";
    if (running && process.host == comm::host_name()) sample.usage = usage_of(sample.pid);
    Row row{role_name(process.role),
            std::to_string(process.rank),
            std::to_string(process.node),
            process.host,
            sample.pid < 0 ? "" : std::to_string(sample.pid),
            process.state,
            sample.step < 0 ? "" : std::to_string(sample.step),
            "",
            "",
            sample.usage ? decimal(static_cast<double>(sample.usage->memory_bytes) * 1e-6, 1) : ""};
    const auto key = std::make_pair(process.role, process.rank);
    const auto before = before_.find(key);
    if (running && before != before_.end() && before->second.pid == sample.pid && now > before->second.at) {
      const double seconds = now - before->second.at;
      if (before->second.step >= 0)
        row[7] = decimal(static_cast<double>(sample.step - before->second.step) / seconds, 1);
      if (sample.usage && before->second.usage)
        row[8] = decimal(100 * (sample.usage->cpu_s - before->second.usage->cpu_s) / seconds, 0);
    }
    samples[key] = sample;
    return row;
  }

  static std::string lines_of(const std::vector<Row>& rows) {
    std::array<size_t, kColumns> widths{};
    for (const Row& row : rows)
      for (size_t c = 0; c < kColumns; ++c) widths[c] = std::max(widths[c], row[c].size());
    std::string text;
    for (const Row& row : rows) {
      std::string line;
      for (size_t c = 0; c < kColumns; ++c) {
        const bool left = c == 0 || c == 3 || c == 5;  // texts; numbers stand at the right
        const std::string space(widths[c] - row[c].size(), ' ');
        line += (c == 0 ? "" : "  ") + (left ? row[c] + space : space + row[c]);
      }
      line.erase(line.find_last_not_of(' ') + 1);
      text += line + "\n";
    }
    return text;
  }

  Samples before_;
};

std::string list_of(const std::vector<std::string>& jobs) {
  if (jobs.empty()) return "no job of this user runs here";
  std::string text;
  for (const std::string& job : jobs) text += (text.empty() ? "these run here: " : ", ") + job;
  return text;
}

int complain_top(const std::string& text) {
  print_message(text);
  return kExitUsage;
}

}  // namespace

int run_top(int argc, const char* const* argv) {
  std::string job;
  double interval = 1;
  bool once = false;
  CLI::App app("Shows the processes of a running job, again and again until it ends.", "mxrun top");
  app.add_option("JOB", job, "name of the job (--job-id); may be left out if one job runs here");
  app.add_option("--interval", interval, "seconds between two tables (default 1)")
      ->check(CLI::Range(0.1, 86400.0));
  app.add_flag("--once", once, "print one table and end");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    return complain_top(std::string("top: ") + error.what() + "; see mxrun top --help");
  }
  const std::vector<std::string> jobs = running_jobs();
  if (job.empty() && jobs.size() != 1)
    return complain_top("top: expected the name of a job; " + list_of(jobs));
  if (job.empty()) job = jobs[0];

  const bool terminal = isatty(STDOUT_FILENO) != 0;
  TopTable table;
  for (bool first = true;; first = false) {
    const std::optional<std::string> answer = ask_status(job);
    if (!answer) {
      if (first) return complain_top("top: expected a running job, got '" + job + "'; " + list_of(jobs));
      return 0;  // it has ended
    }
    std::string text;
    try {
      text = table.next(job_status(*answer));
    } catch (const ProtocolError& error) {
      // Later answers may be cut, because the job ends.
      if (first || once) {
        print_message(mx::detail::concat("top: ", text::without_place(error.what())));
        return kExitRendezvous;
      }
    }
    // Clears the screen; in a file, an empty line separates the tables.
    if (!text.empty()) std::printf("%s%s", terminal ? "\033[H\033[2J" : first ? "" : "\n", text.c_str());
    std::fflush(stdout);
    if (once) return 0;
    std::this_thread::sleep_for(std::chrono::duration<double>(interval));
  }
}

}  // namespace mx::launch
