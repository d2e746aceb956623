#include "comm/place.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "engine/base/check.h"

namespace mx::comm {

namespace {

constexpr int kMostRanks = 1 << 20;
// Slurm marks the steps that are no srun (batch script, interactive shell, external processes) with ids from
// here on.
constexpr int64_t kFirstSpecialStep = 0xfffffff0;

/// A number and the variable that said it.
struct Said {
  std::string name;
  int64_t value = 0;
};

std::string quoted(const Said& said) { return said.name + "=" + std::to_string(said.value); }

class Variables {
 public:
  explicit Variables(const Environment& environment) : environment_(environment) {}

  /// An empty variable counts as unset.
  std::optional<std::string> text(const std::string& name) const {
    auto value = environment_(name);
    if (value && value->empty()) value.reset();
    return value;
  }
  bool has(const std::string& name) const { return text(name).has_value(); }

  std::optional<Said> number(const std::string& name, int64_t least, int64_t most) const {
    const auto value = text(name);
    if (!value) return std::nullopt;
    Said said{name, 0};
    const char* const end = value->data() + value->size();
    const auto [stop, error] = std::from_chars(value->data(), end, said.value);
    MX_CHECK(error == std::errc() && stop == end && said.value >= least && said.value <= most,
             InvalidArgument, "[place] expected ", name, " to be a whole number in ", least, "..", most,
             ", got '", *value, "'");
    return said;
  }
  /// The first of the variables that is set.
  std::optional<Said> first(std::initializer_list<const char*> names, int64_t least, int64_t most) const {
    for (const char* name : names)
      if (auto said = number(name, least, most)) return said;
    return std::nullopt;
  }

 private:
  const Environment& environment_;
};

void check_equal(const std::optional<Said>& a, const std::optional<Said>& b) {
  MX_CHECK(!a || !b || a->value == b->value, InvalidArgument, "[place] expected ", a->name, " and ", b->name,
           " to be equal, got ", quoted(*a), " and ", quoted(*b),
           "; start the program with one launcher and unset the variables of the other");
}

/// Rank and size as one launcher says them.
struct Claim {
  std::string started_by;
  std::optional<Said> rank, size, local_rank, local_size, node;
};

/// Returns the number for `node` in Slurm's list of tasks per node, such as "2(x3),1".
std::optional<Said> slurm_tasks_of_node(const Variables& variables, int64_t node) {
  for (const char* name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}) {
    const auto list = variables.text(name);
    if (!list) continue;
    const char* at = list->data();
    const char* const end = at + list->size();
    const auto malformed = [&] {
      return InvalidArgument(mx::detail::concat("[place] expected ", name,
                                                " to be a list such as '2(x3),1', got '", *list, "'"));
    };
    for (int64_t first = 0;;) {
      int64_t tasks = 0, times = 1;
      auto read = std::from_chars(at, end, tasks);
      if (read.ec != std::errc() || tasks < 0 || tasks > kMostRanks) throw malformed();
      at = read.ptr;
      if (end - at > 2 && at[0] == '(' && at[1] == 'x') {
        read = std::from_chars(at + 2, end, times);
        if (read.ec != std::errc() || times < 1 || times > kMostRanks || read.ptr == end || *read.ptr != ')')
          throw malformed();
        at = read.ptr + 1;
      }
      if (node < first + times) return Said{name, tasks};
      first += times;
      if (at == end) break;
      if (*at++ != ',') throw malformed();
    }
  }
  return std::nullopt;
}

/// What Open MPI's mpirun says.
std::optional<Claim> mpirun_claim(const Variables& v) {
  Claim claim{"mpirun", {}, {}, {}, {}, {}};
  claim.rank = v.number("OMPI_COMM_WORLD_RANK", 0, kMostRanks);
  const auto pmix = v.number("PMIX_RANK", 0, kMostRanks);
  if (!claim.rank) {
    // srun exports PMIX_RANK as well; it is then one of Slurm's.
    if (!pmix || v.has("SLURM_STEP_ID")) return std::nullopt;
    claim.rank = pmix;
  }
  check_equal(claim.rank, pmix);
  claim.size = v.first({"OMPI_COMM_WORLD_SIZE", "PMIX_SIZE"}, 1, kMostRanks);
  claim.local_rank = v.first({"OMPI_COMM_WORLD_LOCAL_RANK", "PMIX_LOCAL_RANK"}, 0, kMostRanks);
  claim.local_size = v.first({"OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_LOCAL_SIZE"}, 1, kMostRanks);
  return claim;
}

/// The rank and the size in the variables that mpiexec of MPICH and of Intel MPI sets.
std::optional<Claim> mpiexec_claim(const Variables& v) {
  Claim claim{"mpiexec", {}, {}, {}, {}, {}};
  claim.rank = v.number("PMI_RANK", 0, kMostRanks);
  // srun may export the variable as well; it is then one of Slurm's.
  if (!claim.rank || v.has("SLURM_STEP_ID")) return std::nullopt;
  claim.size = v.number("PMI_SIZE", 1, kMostRanks);
  claim.local_rank = v.number("MPI_LOCALRANKID", 0, kMostRanks);
  claim.local_size = v.number("MPI_LOCALNRANKS", 1, kMostRanks);
  return claim;
}

/// What srun says. Within a batch script that does not call srun, the process is alone.
std::optional<Claim> srun_claim(const Variables& v) {
  const auto step = v.number("SLURM_STEP_ID", 0, INT64_C(0xffffffff));
  if (!step || step->value >= kFirstSpecialStep) return std::nullopt;
  Claim claim{"srun", {}, {}, {}, {}, {}};
  claim.rank = v.number("SLURM_PROCID", 0, kMostRanks);
  if (!claim.rank) return std::nullopt;
  check_equal(claim.rank, v.number("PMIX_RANK", 0, kMostRanks));
  claim.size = v.first({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}, 1, kMostRanks);
  claim.local_rank = v.number("SLURM_LOCALID", 0, kMostRanks);
  claim.node = v.number("SLURM_NODEID", 0, kMostRanks);
  claim.local_size = slurm_tasks_of_node(v, claim.node ? claim.node->value : 0);
  return claim;
}

/// What a pod of an Indexed Job says. Its size must be in MX_WORLD_SIZE: Kubernetes does not export it.
std::optional<Claim> kubernetes_claim(const Variables& v) {
  Claim claim{"kubernetes", {}, {}, {}, {}, {}};
  claim.rank = v.number("JOB_COMPLETION_INDEX", 0, kMostRanks);
  if (!claim.rank) return std::nullopt;
  // Without one of mxrun's variables, the program is one that needs no job, in some pod of an Indexed Job.
  if (!v.has("MX_WORLD_SIZE") && !v.has("MX_RDZV")) return std::nullopt;
  claim.local_rank = Said{"JOB_COMPLETION_INDEX", 0};
  claim.local_size = Said{"JOB_COMPLETION_INDEX", 1};
  claim.node = claim.rank;
  return claim;
}

std::string other_launchers_job(const Variables& v, const std::string& started_by) {
  if (started_by == "srun") {
    const auto job = v.text("SLURM_JOB_ID");
    return "slurm-" + job.value_or("0") + "." + v.text("SLURM_STEP_ID").value_or("0");
  }
  if (started_by == "mpirun")
    return "mpirun-" + v.text("PMIX_NAMESPACE").value_or(v.text("OMPI_MCA_ess_base_jobid").value_or("0"));
  return "";
}

void read_options(const Variables& v, Place& place) {
  constexpr int64_t kMost = INT64_C(1) << 40;
  const auto set = [&](auto& to, const char* name, int64_t least, int64_t most) {
    if (const auto said = v.number(name, least, most))
      to = static_cast<std::remove_reference_t<decltype(to)>>(said->value);
  };
  set(place.servers, "MX_NUM_SERVERS", 0, kMostRanks);
  set(place.epoch, "MX_EPOCH", 0, kMost);
  set(place.incarnation, "MX_INCARNATION", 0, INT64_MAX);
  set(place.restarts, "MX_RESTART_COUNT", 0, kMost);
  set(place.timeout_ms, "MX_TIMEOUT_MS", 1, kMost);
  const TimeLimits derived = limits_from(place.timeout_ms);
  place.heartbeat_ms = derived.heartbeat_ms;
  place.dead_after_ms = derived.dead_after_ms;
  set(place.heartbeat_ms, "MX_HEARTBEAT_MS", 1, kMost);
  set(place.dead_after_ms, "MX_DEAD_AFTER_MS", 1, kMost);
  place.job = v.text("MX_JOB_ID").value_or(other_launchers_job(v, place.started_by));
  place.rendezvous = v.text("MX_RDZV").value_or("");
  place.interface = v.text("MX_INTERFACE").value_or("");
  const std::string cost_model = v.text("MX_COST_MODEL").value_or("fit");
  MX_CHECK(cost_model == "fit" || cost_model == "fixed", InvalidArgument,
           "[place] expected MX_COST_MODEL to be 'fit' or 'fixed', got '", cost_model, "'");
  place.fit_cost_model = cost_model == "fit";
  MX_CHECK(place.heartbeat_ms < place.dead_after_ms, InvalidArgument,
           "[place] expected MX_HEARTBEAT_MS to be shorter than MX_DEAD_AFTER_MS, got ", place.heartbeat_ms,
           " and ", place.dead_after_ms);
}

Role read_role(const Variables& v) {
  const std::string role = v.text("MX_ROLE").value_or("worker");
  MX_CHECK(role == "worker" || role == "server", InvalidArgument,
           "[place] expected MX_ROLE to be 'worker' or 'server', got '", role, "'");
  return role == "worker" ? Role::worker : Role::server;
}

void check_below(const std::optional<Said>& rank, const std::optional<Said>& size) {
  MX_CHECK(!rank || !size || rank->value < size->value, InvalidArgument, "[place] expected ", rank->name,
           " to be less than ", size->name, ", got ", quoted(*rank), " and ", quoted(*size));
}

}  // namespace

Place find_place(const Environment& environment) {
  const Variables v(environment);
  const Role role = read_role(v);
  const auto workers = v.number("MX_WORLD_SIZE", 1, kMostRanks);
  const auto servers = v.number("MX_NUM_SERVERS", 0, kMostRanks);
  const auto named_workers = v.number("MX_NUM_WORKERS", 1, kMostRanks);
  if (role == Role::worker) check_equal(workers, named_workers);
  // A server counts among the servers. Its MX_WORLD_SIZE is their number under mxrun, and that of the workers
  // in a pod, therefore MX_NUM_SERVERS counts.
  const Claim mx{"mxrun",
                 v.number("MX_RANK", 0, kMostRanks),
                 role == Role::server && servers ? servers : workers,
                 v.number("MX_LOCAL_RANK", 0, kMostRanks),
                 v.number("MX_LOCAL_WORLD_SIZE", 1, kMostRanks),
                 v.number("MX_NODE_RANK", 0, kMostRanks)};
  // mxrun's agent may itself be a process of srun, mpirun or a pod, whose variables then reach the ranks.
  // mxrun exports all of its variables, and a person who sets a rank by hand does not.
  const bool by_mxrun = mx.rank && (v.has("MX_STARTED_BY") || (mx.local_rank && v.has("MX_RDZV")));

  std::optional<Claim> claim;
  if (!by_mxrun) {
    claim = mpirun_claim(v);
    if (!claim) claim = mpiexec_claim(v);
    if (!claim) {
      claim = srun_claim(v);
      const std::optional<Claim> pod = kubernetes_claim(v);
      if (claim && pod) check_equal(claim->rank, pod->rank);
      if (!claim) claim = pod;
    }
  }
  if (claim) {
    check_equal(mx.rank, claim->rank);
    if (role == Role::worker) check_equal(mx.size, claim->size);
    if (!claim->size || role == Role::server) claim->size = mx.size;
    MX_CHECK(claim->size, InvalidArgument, "[place] expected MX_WORLD_SIZE to say how many processes run, ",
             "because ", quoted(*claim->rank), " says that this is one of several, got none");
  } else if (mx.rank) {
    MX_CHECK(mx.size, InvalidArgument, "[place] expected MX_WORLD_SIZE beside ", quoted(*mx.rank),
             ", got none");
    claim = mx;
  }

  Place place;
  place.role = role;
  if (claim) {
    check_below(claim->rank, claim->size);
    if (role == Role::worker) check_below(claim->local_rank, claim->local_size);
    place.started_by = claim->started_by;
    place.rank = static_cast<int>(claim->rank->value);
    place.size = static_cast<int>(claim->size->value);
    if (place.size == 1) place.local_size = 1;
    if (claim->local_rank) place.local_rank = static_cast<int>(claim->local_rank->value);
    if (claim->local_size) place.local_size = static_cast<int>(claim->local_size->value);
    if (role == Role::server)
      place.local_size = std::clamp(place.local_size, place.local_rank + 1, kMostRanks + 1);
    MX_CHECK(place.local_rank < place.local_size, InvalidArgument, "[place] expected ",
             claim->local_rank ? claim->local_rank->name : "the local rank",
             " to be less than the number of processes of this host, got ", place.local_rank, " and ",
             place.local_size);
    MX_CHECK(role == Role::server || place.local_size <= place.size, InvalidArgument, "[place] expected ",
             claim->local_size ? quoted(*claim->local_size) : "one process", " to be at most ",
             quoted(*claim->size));
    if (claim->node) place.node = static_cast<int>(claim->node->value);
  }
  place.workers = place.size;
  if (role == Role::server) {
    const auto said = named_workers ? named_workers : workers;
    if (said) place.workers = static_cast<int>(said->value);
  }
  read_options(v, place);

  // Launchers whose processes do not find each other here: each would train alone and write the same files.
  if (!claim) {
    for (const char* name : {"HOROVOD_RANK", "DMLC_ROLE"})
      MX_CHECK(!v.has(name), InvalidArgument,
               "[place] expected a process that mxrun, mpirun, srun or Kubernetes has ", "started, got ",
               name, " of another launcher: start the program with mxrun, or unset the variable");
  }
  // The names that other frameworks use. mxrun exports them, too.
  if (place.role == Role::worker) {
    const auto rank = v.number("RANK", 0, kMostRanks), size = v.number("WORLD_SIZE", 1, kMostRanks);
    if (claim) {
      check_equal(claim->rank, rank);
      check_equal(claim->size, size);
    } else {
      MX_CHECK(!rank || !size || size->value == 1, InvalidArgument,
               "[place] expected MX_RANK and MX_WORLD_SIZE beside ", quoted(*rank), " and ", quoted(*size),
               ", got neither: start the program with mxrun, mpirun or srun");
    }
    for (const char* name : {"MX_EXPECT_WORLD_SIZE", "MX_WORLD_SIZE"}) {
      const auto asked = v.number(name, 1, kMostRanks);
      MX_CHECK(!asked || asked->value == place.size, InvalidArgument, "[place] expected a world of ",
               quoted(*asked), " processes, got one of ", place.size, " (started by ", place.started_by,
               "): start the program with mxrun, mpirun or srun");
    }
  }
  MX_CHECK(place.size == 1 || !place.rendezvous.empty() || place.started_by == "mpirun" ||
               place.started_by == "mpiexec" || place.started_by == "srun",
           InvalidArgument, "[place] expected MX_RDZV to say where the ", place.size,
           " processes find each other, got none (started by ", place.started_by, ", rank ", place.rank, ")");
  return place;
}

Place find_place() {
  return find_place([](const std::string& name) -> std::optional<std::string> {
    const char* const value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return std::string(value);
  });
}

}  // namespace mx::comm
