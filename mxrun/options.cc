#include "mxrun/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <istream>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/deadline.h"
#include "comm/net/handshake.h"
#include "comm/place.h"
#include "engine/base/check.h"
#include "mxrun/config_file.h"
#include "mxrun/environment.h"
#include "mxrun/exit_codes.h"
#include "mxrun/hosts/placement.h"
#include "mxrun/hosts/text.h"
#include "mxrun/plan.h"

namespace mx::launch {
namespace {

constexpr char kEmptyValue[] = "expected a value, got an empty one";
constexpr int kMostRestarts = 1 << 20;

int whole_number(const std::string& text, const std::string& flag, int least, int most) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  MX_CHECK(error == std::errc() && end == text.data() + text.size() && number >= least && number <= most,
           InvalidArgument, flag, ": expected a whole number from ", least, " to ", most, ", got ",
           text.empty() ? "nothing" : text);
  return number;
}

// Parses "10", "0.5", "10s", "500ms", "2m" or "1h": seconds unless there is a unit.
int64_t duration_ms(const std::string& text, const std::string& flag) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  double scale = 0;
  if (unit.empty() || unit == "s") scale = 1000;
  if (unit == "ms") scale = 1;
  if (unit == "m") scale = 60e3;
  if (unit == "h") scale = 3600e3;
  MX_CHECK(end != text.c_str() && scale > 0 && std::isfinite(number) && number >= 0, InvalidArgument, flag,
           ": expected a time such as 10, 0.5s, 500ms or 2m, got ", text);
  MX_CHECK(number * scale <= static_cast<double>(comm::kLongestTimeoutMs), InvalidArgument, flag,
           ": expected a time of at most ", comm::kLongestTimeoutMs / 3'600'000, "h, got ", text);
  return static_cast<int64_t>(std::ceil(number * scale));
}

std::pair<std::string, std::string> variable(const std::string& text) {
  const size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  MX_CHECK(!name.empty(), InvalidArgument, "-x: expected NAME=VALUE or NAME, got '", text, "'");
  const std::vector<std::string> own = variables_of_mxrun();
  MX_CHECK(std::find(own.begin(), own.end(), name) == own.end(), InvalidArgument,
           "-x: expected a variable that mxrun does not set, got ", name,
           ", which tells a process its place in the job");
  if (equals != std::string::npos) return {name, text.substr(equals + 1)};
  const char* value = std::getenv(name.c_str());
  MX_CHECK(value != nullptr, InvalidArgument, "-x: expected a variable that is set here, got ", name,
           "; give it a value: -x ", name, "=VALUE");
  return {name, value};
}

struct Texts {
  std::string workers, servers, nodes, timeout, start_timeout, heartbeat, dead_after, grace, bind, restart,
      max_restarts, agent_node;
  std::vector<std::string> variables;
  std::vector<std::string> file_variables, file_kubernetes;  // -x and --k8s of --config, ahead of the others
  bool tag = false, no_tag = false;
};

// CLI11 describes; the numbers are parsed here, so that the messages name what was expected and what was got.
// Looks at each option alone.
void read_texts(const Texts& texts, Options* options) {
  if (!texts.workers.empty()) options->workers = whole_number(texts.workers, "-n", 1, kMostProcesses);
  if (!texts.servers.empty()) options->servers = whole_number(texts.servers, "-s", 0, kMostProcesses);
  if (!texts.nodes.empty()) options->nodes = parse_node_count(texts.nodes);
  const auto duration = [](const std::string& text, const char* flag, int64_t* value) {
    if (!text.empty()) *value = duration_ms(text, flag);
  };
  duration(texts.timeout, "--timeout", &options->timeout_ms);
  duration(texts.start_timeout, "--start-timeout", &options->start_timeout_ms);
  const comm::TimeLimits derived = comm::limits_from(options->timeout_ms);
  options->heartbeat_ms = derived.heartbeat_ms;
  options->dead_after_ms = derived.dead_after_ms;
  options->grace_ms = derived.grace_ms;
  duration(texts.heartbeat, "--heartbeat", &options->heartbeat_ms);
  duration(texts.dead_after, "--dead-after", &options->dead_after_ms);
  duration(texts.grace, "--grace", &options->grace_ms);
  MX_CHECK(options->timeout_ms > 0, InvalidArgument, "--timeout: expected more than 0, got ", texts.timeout);
  MX_CHECK(options->heartbeat_ms > 0, InvalidArgument, "--heartbeat: expected more than 0, got ",
           texts.heartbeat);
  if (!texts.max_restarts.empty()) {
    options->max_restarts = whole_number(texts.max_restarts, "--max-restarts", 0, kMostRestarts);
  }
  for (const std::string& text : texts.file_variables) options->environment.push_back(variable(text));
  for (const std::string& text : texts.variables) options->environment.push_back(variable(text));
  options->kubernetes.insert(options->kubernetes.begin(), texts.file_kubernetes.begin(),
                             texts.file_kubernetes.end());
  if (texts.tag) options->tag_output = 1;
  if (texts.no_tag) options->tag_output = 0;
  if (!texts.agent_node.empty() && texts.agent_node != "auto") {
    options->agent_node = whole_number(texts.agent_node, "--agent-node", 0, kMostProcesses);
  }
  parse_rank_list(options->ranks);
  if (texts.bind == "none") options->bind = false;
  if (texts.restart == "group") options->restart = Restart::group;
}

// Manifests describe pods, which these options say nothing about.
void check_kubernetes(const Options& options) {
  const std::pair<bool, const char*> without_meaning[] = {
      {!options.hosts.empty(), "--host"},
      {!options.hostfile.empty(), "--hostfile"},
      {options.nodes > 0, "--nnodes"},
      {!options.per_node.empty(), "--nproc-per-node"},
      {!options.bind, "--bind"},
      {!options.rendezvous.empty(), "--rdzv"},
      {!options.secret_file.empty(), "--secret-file"},
      {!options.tls_certificate.empty(), "--tls-cert"},
      {options.restart != Restart::none, "--restart"},
      {!options.log_dir.empty(), "--log-dir"},
      {options.tag_output >= 0, "--tag-output and --no-tag-output"},
      {options.timestamp_output, "--timestamp-output"},
      {!options.ranks.empty(), "--ranks"},
      {!options.events.empty(), "--events"},
      {options.check, "--check"},
  };
  for (const auto& [given, name] : without_meaning) {
    MX_CHECK(!given, InvalidArgument, name,
             ": expected another launcher than k8s, whose manifests cannot express it");
  }
}

// Looks at options that depend on each other.
void check_together(const Texts& texts, Options* options) {
  MX_CHECK(options->dead_after_ms >= 2 * options->heartbeat_ms, InvalidArgument,
           "--dead-after: expected at least two heartbeats (", 2 * options->heartbeat_ms, " ms), got ",
           options->dead_after_ms, " ms");
  if (!texts.max_restarts.empty()) {
    MX_CHECK(options->restart != Restart::none || options->max_restarts == 0 || texts.restart.empty(),
             InvalidArgument, "--max-restarts: expected --restart group with it, got --restart none");
    if (texts.restart.empty() && options->max_restarts > 0) options->restart = Restart::group;
  } else if (options->restart == Restart::group) {
    options->max_restarts = 1;
  }
  MX_CHECK(options->kubernetes.empty() || options->launcher == "k8s", InvalidArgument,
           "--k8s: expected --launcher k8s with it, got --launcher ", options->launcher);
  const std::pair<const std::string&, const char*> tls_files[] = {{options->tls_certificate, "--tls-cert"},
                                                                  {options->tls_key, "--tls-key"},
                                                                  {options->tls_authority, "--tls-ca"}};
  for (const auto& [file, name] : tls_files) {
    if (file.empty()) continue;
    std::string missing;
    for (const auto& [other, other_name] : tls_files)
      if (other.empty()) missing += (missing.empty() ? "" : " and ") + std::string(other_name);
    MX_CHECK(missing.empty(), InvalidArgument, name, ": expected ", missing, " with it, got none");
  }
  if (!options->tls_certificate.empty()) options->tls = true;
  if (options->launcher == "k8s") check_kubernetes(*options);
  MX_CHECK(!options->tee || !options->log_dir.empty(), InvalidArgument,
           "--tee: expected --log-dir with it, got none; without logs all output is printed anyway");
}

/// The names of the type list the values already, so the description of the check would repeat them.
CLI::Validator job_name() {
  const auto check = [](const std::string& name) {
    constexpr size_t kLongest = comm::Identity::kLongestJob;  // of the handshake
    if (name.size() > kLongest)
      return mx::detail::concat("expected at most ", kLongest, " bytes, got ", name.size());
    // The name is a part of JSON files and of messages.
    const bool printable = std::all_of(name.begin(), name.end(), [](char c) { return c > 0x20 && c < 0x7f; });
    return printable ? std::string()
                     : "expected printable ASCII characters without spaces, got " + text::quoted(name);
  };
  return CLI::Validator(check, "", "");
}

CLI::Validator one_of(const std::vector<std::string>& values) {
  return CLI::IsMember(values).description("");
}

void add_options(CLI::App* app, Options* options, Texts* texts) {
  const auto text = [app](const char* names, std::string* value, const char* help, const char* kind) {
    return app->add_option(names, *value, help)->type_name(kind)->group("Placement");
  };
  text("-n,--np", &texts->workers, "number of worker processes (default: one per slot, or 1)", "N");
  text("-s,--servers", &texts->servers, "number of parameter servers (default 0: allreduce)", "S");
  text("--nnodes", &texts->nodes, "number of nodes: the first N hosts; a range N:M is refused", "N");
  text("--nproc-per-node", &options->per_node, "workers on each node: a number, auto, gpu or cpu", "N");
  text("-H,--host", &options->hosts, "hosts with their slots", "HOST[:SLOTS],...");
  text("--hostfile", &options->hostfile,
       "file of hosts, one per line: HOST slots=N; max_slots=N is only checked", "FILE");
  text("--launcher", &options->launcher, "what starts the agents (default auto)",
       "auto|local|ssh|slurm|mpi|k8s")
      ->check(one_of({"auto", "local", "ssh", "slurm", "mpi", "k8s"}));
  app->add_option(
         "--k8s", options->kubernetes,
         "for manifests: image, namespace, name, kind (job or jobset), port, interface, secret, cpu, "
         "memory, gpus")
      ->type_name("KEY=VALUE,...")
      ->expected(1)
      ->allow_extra_args(false)  // the next word is the program
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group("Placement");
  text("--bind", &texts->bind, "bind workers to cores of their own (default core)", "core|none")
      ->check(one_of({"core", "none"}));

  const auto rendezvous = [app](const char* names, std::string* value, const char* help, const char* kind) {
    return app->add_option(names, *value, help)->type_name(kind)->group("Rendezvous and time limits");
  };
  rendezvous(
      "--rdzv", &options->rendezvous,
      "where mxrun listens: an address or interface of this machine (default: loopback, any free port)",
      "HOST:PORT");
  rendezvous("--job-id", &options->job, "name of the job, at most 64 bytes (default: made up)", "NAME")
      ->check(job_name());
  rendezvous("--secret-file", &options->secret_file,
             "file (0600) with the secret of the job (default: made up)", "FILE");
  app->add_flag("--tls", options->tls,
                "encrypt the connections of the job with TLS 1.3, with keys made from its secret")
      ->group("Rendezvous and time limits");
  rendezvous("--tls-cert", &options->tls_certificate,
             "encrypt with certificates instead: that of each node, at this path there; needs --tls-key and "
             "--tls-ca",
             "FILE");
  rendezvous("--tls-key", &options->tls_key, "file (0600) with the key of the certificate", "FILE");
  rendezvous("--tls-ca", &options->tls_authority, "file with the authority that has signed all certificates",
             "FILE");
  rendezvous("--timeout", &texts->timeout, "longest time that any call waits (default 60)", "SECONDS");
  rendezvous("--start-timeout", &texts->start_timeout, "time for the agents to come (default: --timeout)",
             "SECONDS");
  rendezvous("--heartbeat", &texts->heartbeat,
             "time between heartbeats (default 0.5, less with a shorter --timeout)", "SECONDS");
  rendezvous("--dead-after", &texts->dead_after,
             "silence after which a process is lost (default 5, or a twelfth of --timeout, but at least 2)",
             "SECONDS");
  rendezvous("--grace", &texts->grace,
             "time between SIGTERM and SIGKILL (default 10, or a sixth of --timeout, but at least 2)",
             "SECONDS");

  const auto faults = [app](const char* names, std::string* value, const char* help, const char* kind) {
    return app->add_option(names, *value, help)->type_name(kind)->group("Failures");
  };
  faults("--restart", &texts->restart,
         "what to start again after a failure (default none; group with --max-restarts)", "none|group")
      ->check(one_of({"none", "group"}));
  faults("--max-restarts", &texts->max_restarts,
         "how often, in the whole job (default 1 with --restart group, else 0)", "N");

  const char* const output = "Output";
  app->add_option("--log-dir", options->log_dir,
                  "write the output of each rank, and job.json, here; logs of the job before are removed")
      ->type_name("FOLDER")
      ->group(output);
  app->add_flag("--tee", options->tee, "with --log-dir: print the output, too")->group(output);
  CLI::Option* tag = app->add_flag("--tag-output", texts->tag, "begin each line with [node:rank] (default)");
  CLI::Option* no_tag = app->add_flag("--no-tag-output", texts->no_tag, "print lines as they are");
  tag->group(output)->excludes(no_tag);
  no_tag->group(output);
  app->add_flag("--timestamp-output", options->timestamp_output, "begin each line with the time")
      ->group(output);
  app->add_option("--ranks", options->ranks, "print only the output of these ranks: 0,2-3")
      ->type_name("LIST")
      ->group(output);
  app->add_option("--events", options->events, "write what happens, a line of JSON each")
      ->type_name("FILE")
      ->group(output);

  app->add_option("-x", texts->variables,
                  "set a variable for the program, or pass one on; not those of mxrun itself")
      ->type_name("NAME[=VALUE]")
      ->expected(1)
      ->allow_extra_args(false)  // the next word is the program
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app->add_flag("--dry-run", options->dry_run, "print what would be started, and start nothing");
  app->add_flag("--check", options->check, "check program, nodes and ports, and start nothing");
  app->add_flag("--tune", options->tune,
                "measure the collectives with -n processes and print the cost model");
  app->add_option("--completion", options->completion, "print the completion script of a shell")
      ->type_name("bash|zsh|fish")
      ->check(one_of({"bash", "zsh", "fish"}));
  app->allow_config_extras(CLI::config_extras_mode::error);
  app->set_config("--config", "",
                  "read options from a file, NAME=VALUE per line; the command line overrides it")
      ->type_name("FILE");

  const char* const hidden = "";
  app->add_flag("--tune-rank", options->tune_rank)->group(hidden);
  app->add_flag("--man", options->man)->group(hidden);
  app->add_flag("--agent", options->agent)->group(hidden);
  app->add_option("--agent-node", texts->agent_node)->group(hidden);
  app->add_option("--agent-fd", options->agent_fd)->group(hidden);
  app->add_flag("--secret-stdin", options->secret_stdin)->group(hidden);

  // An empty value, often of a shell variable that is not set, would otherwise count as "not given".
  for (CLI::Option* option : app->get_options()) {
    if (option->get_items_expected_max() == 0 || option->check_name("-x")) continue;
    // As a transformation, because those run before the checks.
    option->transform(CLI::Validator(
        [](const std::string& value) { return std::string(value.empty() ? kEmptyValue : ""); }, ""));
  }
}

/// Only the values of flags are converted by CLI11, which says "Could not convert: --tls = maybe".
std::string of_flag(const std::string& message) {
  const std::string begin = "Could not convert: ", middle = " = ";
  const size_t at = message.find(middle);
  if (!message.starts_with(begin) || at == std::string::npos) return message;
  return mx::detail::concat(message.substr(begin.size(), at - begin.size()),
                            ": expected true or false, got '", message.substr(at + middle.size()), "'");
}

/// Reads files for --config. Each line is parsed alone first, so that a message can name the line.
class ConfigReader : public CLI::Config {
 public:
  /// `app` has parsed the command line when it asks for the file.
  ConfigReader(const CLI::App* app, Options* options, Texts* texts)
      : app_(app), options_(options), texts_(texts) {}

  std::string to_config(const CLI::App*, bool, bool, std::string) const override { return ""; }

  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    try {
      return items_of(input);
    } catch (const InvalidArgument& error) {
      throw CLI::ConfigError(error.what());
    }
  }

 private:
  /// Returns whether the command line has an option that does not go together with this one of the file.
  /// CLI11 itself drops only lines whose own option is on the command line.
  bool is_overridden(const std::string& name) const {
    const auto value = [&](const char* option) {
      return given(option) ? app_->get_option(option)->results().back() : std::string();
    };
    if (name == "--tag-output") return given("--no-tag-output");
    if (name == "--no-tag-output") return given("--tag-output");
    if (name == "--host") return given("--hostfile");
    if (name == "--hostfile") return given("--host");
    if (name == "--restart") return given("--max-restarts");
    if (name == "--max-restarts") return value("--restart") == "none";
    if (name == "--k8s") return given("--launcher") && value("--launcher") != "k8s";
    return false;
  }

  bool given(const std::string& option) const { return app_->get_option(option)->count() > 0; }

  std::vector<CLI::ConfigItem> items_of(std::istream& input) const {
    std::map<std::string, CLI::ConfigItem> by_name;  // by the name of the option
    std::map<std::string, int> seen;                 // number of the line that set it
    for (const ConfigLine& line : read_config(input)) {
      Options options;
      Texts texts;
      CLI::App app;
      add_options(&app, &options, &texts);
      const bool letter = line.name.size() == 1;
      const std::string flag = (letter ? "-" : "--") + line.name;
      CLI::Option* const option = app.get_option_no_throw(flag);
      MX_CHECK(option != nullptr && option->get_configurable() && !option->get_group().empty(),
               InvalidArgument, place_of(line), "expected the name of an option, got ", line.name,
               "; see mxrun --help");
      const bool is_flag = option->get_items_expected_max() == 0;
      MX_CHECK(is_flag || line.has_value, InvalidArgument, place_of(line), "expected a value, as in ",
               line.name, "=", option->get_type_name());
      const std::string value = line.has_value ? line.value : "true";
      try {
        option->add_result(is_flag ? option->get_flag_value(line.name, value) : value);
        option->run_callback();
        read_texts(texts, &options);
      } catch (const CLI::ConversionError& error) {
        throw InvalidArgument(place_of(line) + of_flag(error.what()));
      } catch (const CLI::Error& error) {
        throw InvalidArgument(place_of(line) + error.what());
      } catch (const InvalidArgument& error) {
        throw InvalidArgument(mx::detail::concat(place_of(line), text::without_place(error.what())));
      }
      const std::string name = option->get_name();
      const bool repeatable = option->get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
      const auto [before, is_first] = seen.emplace(name, line.number);
      MX_CHECK(is_first || repeatable, InvalidArgument, place_of(line), "expected ", line.name,
               " once, got it in line ", before->second, ", too");
      by_name[name].name = line.name;
      by_name[name].inputs.push_back(value);
    }
    std::vector<CLI::ConfigItem> result;
    for (auto& [name, item] : by_name) {
      if (is_overridden(name)) continue;
      // Only the number of nodes, which is not known here, tells whether these two go together.
      if (name == "--np" && !given(name)) options_->workers_in_file = true;
      if (name == "--nproc-per-node" && !given(name)) options_->per_node_in_file = true;
      // Of these the last one with a name counts, so those of the command line come after those of the file.
      if (name == "-x") {
        texts_->file_variables = std::move(item.inputs);
      } else if (name == "--k8s") {
        texts_->file_kubernetes = std::move(item.inputs);
      } else {
        result.push_back(std::move(item));
      }
    }
    return result;
  }

  const CLI::App* app_;
  Options* options_;
  Texts* texts_;
};

/// Returns what to do about an option that mxrun does not have. Those of torchrun have underscores.
std::string advice_on(const CLI::App& app, std::string word) {
  word = word.substr(0, word.find('='));
  std::replace(word.begin(), word.end(), '_', '-');
  if (app.get_option_no_throw(word) != nullptr) return "did you mean " + word + "?";
  return "see mxrun --help";
}

/// Refuses "--name=": CLI11 would take the next word, which is often the program, as the value.
void refuse_cut_values(const CLI::App& app, int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.size() < 2 || word[0] != '-' || word == "--") return;                 // the program
    MX_CHECK(word != "-np", InvalidArgument, "expected -n N or --np N, got -np");  // of mpirun
    const size_t equals = word.starts_with("--") ? word.find('=') : std::min<size_t>(word.size(), 2);
    const CLI::Option* const option = app.get_option_no_throw(word.substr(0, equals));
    if (option == nullptr) return;  // the parser reports it
    if (option->get_items_expected_max() == 0) continue;
    MX_CHECK(!word.starts_with("--") || equals != word.size() - 1, InvalidArgument, word.substr(0, equals),
             ": ", kEmptyValue);
    if (equals >= word.size()) ++i;  // the next word is the value
  }
}

}  // namespace

std::vector<int> parse_rank_list(const std::string& text) {
  std::vector<int> ranks;
  if (text.empty()) return ranks;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    const size_t dash = part.find('-');
    const int first = whole_number(part.substr(0, dash), "--ranks", 0, kMostProcesses);
    const int last =
        dash == std::string::npos ? first : whole_number(part.substr(dash + 1), "--ranks", 0, kMostProcesses);
    MX_CHECK(first <= last, InvalidArgument, "--ranks: expected the smaller rank of a range first, got ",
             part);
    for (int rank = first; rank <= last; ++rank) ranks.push_back(rank);
    begin = end + 1;
  }
  return ranks;
}

std::vector<OptionHelp> option_table() {
  Options options;
  Texts texts;
  CLI::App app("", "mxrun");
  app.set_version_flag("--version", "");
  add_options(&app, &options, &texts);
  std::vector<OptionHelp> table;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    OptionHelp line;
    for (const std::string& name : option->get_snames()) line.names.push_back("-" + name);
    for (const std::string& name : option->get_lnames()) line.names.push_back("--" + name);
    const bool is_flag = option->get_items_expected_max() == 0;
    if (!is_flag) line.kind = option->get_type_name();
    line.help = option->get_description();
    line.group = option->get_group();
    line.repeatable = option->get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
    table.push_back(std::move(line));
  }
  // Options of a group are added together, but those without one are at the front and at the end.
  std::stable_sort(table.begin(), table.end(), [](const OptionHelp& a, const OptionHelp& b) {
    return (a.group == "Options") < (b.group == "Options");
  });
  return table;
}

Parsed parse_options(int argc, const char* const* argv) {
  Parsed parsed;
  Texts texts;
  CLI::App app("Starts the processes of a program on one or many machines, and ends them together.", "mxrun");
  app.get_formatter()->column_width(34);
  app.set_version_flag("--version", "mxrun " MX_VERSION);
  app.footer(
      "mxrun top [JOB] shows the processes of a running job; see mxrun top --help.\n"
      "Exit code: that of the first process that failed, or 128 + its signal; 2 usage, 69 rendezvous,\n"
      "71 port taken, 77 authentication, 78 configuration, 124 timeout, 126 cannot execute,\n"
      "127 not found, 129, 130 and 143 ended by SIGHUP, SIGINT or SIGTERM.");
  add_options(&app, &parsed.options, &texts);
  app.config_formatter(std::make_shared<ConfigReader>(&app, &parsed.options, &texts));
  // The first argument that is none of mxrun's is the program; everything after it belongs to the program.
  app.prefix_command();
  try {
    refuse_cut_values(app, argc, argv);
    app.parse(argc, argv);
    read_texts(texts, &parsed.options);
    check_together(texts, &parsed.options);
    parsed.options.program = app.remaining();
    if (!parsed.options.program.empty() && parsed.options.program[0] == "--") {
      parsed.options.program.erase(parsed.options.program.begin());
    } else if (!parsed.options.program.empty()) {
      MX_CHECK(parsed.options.program[0].substr(0, 1) != "-", InvalidArgument,
               "expected an option of mxrun, got ", parsed.options.program[0], "; ",
               advice_on(app, parsed.options.program[0]));
    }
    const Options& options = parsed.options;
    MX_CHECK(options.program.empty() || !options.tune, InvalidArgument,
             "--tune: expected no program, because mxrun measures by itself, got ", options.program[0]);
    MX_CHECK(!options.program.empty() || options.agent || options.tune || options.tune_rank || options.man ||
                 !options.completion.empty(),
             InvalidArgument, "expected a program to run, got none; try: mxrun -n 2 ./program");
  } catch (const CLI::CallForHelp&) {
    parsed.exit_code = 0;
    parsed.text = app.help();
    const std::string usage = "[OPTIONS]";
    const size_t at = parsed.text.find(usage);
    if (at != std::string::npos) parsed.text.replace(at, usage.size(), usage + " PROGRAM [ARGUMENTS...]");
  } catch (const CLI::CallForVersion&) {
    parsed.exit_code = 0;
    parsed.text = std::string("mxrun ") + MX_VERSION + "\n";
  } catch (const CLI::FileError& error) {
    parsed.exit_code = kExitConfiguration;
    parsed.text = std::string("mxrun: --config: ") + error.what() + "\n";
  } catch (const CLI::ConfigError& error) {
    parsed.exit_code = kExitConfiguration;
    parsed.text = "mxrun: --config " + app.get_config_ptr()->results().back() + ": " + error.what() + "\n";
  } catch (const CLI::ArgumentMismatch& error) {
    // CLI11 says "At Most 1 required but received 2", or that the value is missing.
    const std::string message = error.what();
    const size_t twice = message.find(" At Most 1 required");
    parsed.exit_code = kExitUsage;
    parsed.text = mx::detail::concat(
        "mxrun: ",
        twice == std::string::npos ? message : message.substr(0, twice) + " expected once, got it again",
        "; see mxrun --help\n");
  } catch (const CLI::ConversionError& error) {
    parsed.exit_code = kExitUsage;
    parsed.text = "mxrun: " + of_flag(error.what()) + "\n";
  } catch (const CLI::ParseError& error) {
    parsed.exit_code = kExitUsage;
    parsed.text = std::string("mxrun: ") + error.what() + "; see mxrun --help\n";
  } catch (const InvalidArgument& error) {
    parsed.exit_code = kExitUsage;
    parsed.text = mx::detail::concat("mxrun: ", text::without_place(error.what()), "\n");
  }
  // The values in a message are those of the user, or of a file.
  if (parsed.exit_code > 0) {
    const std::string_view message(parsed.text.data(), parsed.text.size() - 1);  // without its end of line
    parsed.text = text::in_one_line(message) + "\n";
  }
  return parsed;
}

}  // namespace mx::launch
