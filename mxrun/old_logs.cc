#include "mxrun/old_logs.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "mxrun/hosts/text.h"

namespace mx::launch {
namespace {

/// How many processes the old job had, and how often it was restarted.
struct OldJob {
  int workers = 0, servers = 0, restarts = 0;
};

std::optional<OldJob> read_old_job(const std::string& path) {
  std::ifstream file(path);
  const nlohmann::json job = nlohmann::json::parse(file, nullptr, false);
  if (!job.is_object()) return std::nullopt;
  OldJob old;
  const auto number = [&job](const char* name, int* value) {
    const auto found = job.find(name);
    if (found == job.end() || !found->is_number_integer()) return false;
    *value = found->get<int>();
    return true;
  };
  const bool is_ours = job.contains("launcher") && job.contains("processes") &&
                       number("workers", &old.workers) && number("servers", &old.servers) &&
                       number("restarts", &old.restarts);
  return is_ours ? std::optional<OldJob>(old) : std::nullopt;
}

/// Removes `prefix` from the front of `name` and the digits after it; returns their number. Nothing if mxrun
/// would write the number in another way.
std::optional<int> take_number(std::string_view* name, std::string_view prefix) {
  if (!name->starts_with(prefix)) return std::nullopt;
  const std::string_view rest = name->substr(prefix.size());
  const size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
  if (digits > 1 && rest[0] == '0') return std::nullopt;
  const std::optional<int> number = text::parse_number(rest.substr(0, digits));
  if (number.has_value()) *name = rest.substr(digits);
  return number;
}

/// Returns whether the old job has written a file of this name: "rank3.out", "server0.restart2.err", ...
bool is_log_of(const OldJob& job, std::string_view name) {
  int limit = job.workers;
  std::optional<int> number = take_number(&name, "rank");
  if (!number.has_value()) {
    limit = job.servers;
    number = take_number(&name, "server");
  }
  if (!number.has_value() || *number >= limit) return false;
  const std::optional<int> restart = take_number(&name, ".restart");
  if (restart.has_value() && (*restart < 1 || *restart > job.restarts)) return false;
  return name == ".out" || name == ".err";
}

}  // namespace

void remove_old_logs(const std::string& folder) {
  const std::optional<OldJob> old = read_old_job(folder + "/job.json");
  if (!old.has_value()) return;
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (!it->is_regular_file(error) || !is_log_of(*old, it->path().filename().string())) continue;
    std::filesystem::remove(it->path(), error);
  }
}

}  // namespace mx::launch
