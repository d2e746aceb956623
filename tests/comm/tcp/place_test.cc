#include "comm/place.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "engine/base/error.h"
#include "tests/support/errors.h"

namespace mx::comm {
namespace {

using Set = std::map<std::string, std::string>;

Place place_of(const Set& variables) {
  return find_place([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

/// The message must contain all parts.
void expect_refused(const Set& variables, std::initializer_list<const char*> parts) {
  const std::string message = test::error_of<InvalidArgument>([&] { place_of(variables); });
  for (const char* part : parts)
    EXPECT_TRUE(test::contains(message, part)) << message << "\nwithout " << part;
}

const Set kMxrun = {{"MX_RANK", "5"},           {"MX_WORLD_SIZE", "8"},
                    {"MX_LOCAL_RANK", "1"},     {"MX_LOCAL_WORLD_SIZE", "4"},
                    {"MX_NODE_RANK", "1"},      {"MX_RDZV", "10.0.0.1:4711"},
                    {"MX_JOB_ID", "j7"},        {"MX_EPOCH", "2"},
                    {"MX_INCARNATION", "9"},    {"MX_RESTART_COUNT", "1"},
                    {"MX_INTERFACE", "eth0"},   {"MX_TIMEOUT_MS", "7000"},
                    {"MX_HEARTBEAT_MS", "100"}, {"MX_DEAD_AFTER_MS", "900"},
                    {"MX_NUM_SERVERS", "2"},    {"RANK", "5"},
                    {"WORLD_SIZE", "8"}};

Set with(Set set, const Set& more) {
  for (const auto& [name, value] : more) set[name] = value;
  return set;
}

TEST(Place, TimeLimitsFollowFromTheTimeout) {
  EXPECT_EQ(5000, place_of({}).dead_after_ms);
  const Place place = place_of({{"MX_TIMEOUT_MS", "36000"}});
  EXPECT_EQ(3000, place.dead_after_ms);
  EXPECT_EQ(300, place.heartbeat_ms);
  const Place given = place_of({{"MX_TIMEOUT_MS", "36000"}, {"MX_DEAD_AFTER_MS", "700"}});
  EXPECT_EQ(700, given.dead_after_ms);
  EXPECT_EQ(2000, limits_from(1).dead_after_ms);
  EXPECT_EQ(10000, limits_from(INT64_MAX).grace_ms);
}

TEST(Place, WithoutVariablesAProcessIsAlone) {
  const Place place = place_of({});
  EXPECT_EQ(place.started_by, "nothing");
  EXPECT_EQ(place.rank, 0);
  EXPECT_EQ(place.size, 1);
  EXPECT_EQ(place.workers, 1);
  EXPECT_EQ(place.rendezvous, "");
  EXPECT_EQ(place.timeout_ms, 60000);
}

TEST(Place, ReadsEveryVariableOfMxrun) {
  const Place place = place_of(kMxrun);
  EXPECT_EQ(place.started_by, "mxrun");
  EXPECT_EQ(place.role, Role::worker);
  EXPECT_EQ(place.rank, 5);
  EXPECT_EQ(place.size, 8);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.local_size, 4);
  EXPECT_EQ(place.node, 1);
  EXPECT_EQ(place.workers, 8);
  EXPECT_EQ(place.servers, 2);
  EXPECT_EQ(place.epoch, 2);
  EXPECT_EQ(place.incarnation, 9);
  EXPECT_EQ(place.restarts, 1);
  EXPECT_EQ(place.job, "j7");
  EXPECT_EQ(place.rendezvous, "10.0.0.1:4711");
  EXPECT_EQ(place.interface, "eth0");
  EXPECT_EQ(place.timeout_ms, 7000);
  EXPECT_EQ(place.heartbeat_ms, 100);
  EXPECT_EQ(place.dead_after_ms, 900);
}

TEST(Place, AServerCountsAmongTheServers) {
  const Place place = place_of(with(kMxrun, {{"MX_ROLE", "server"}, {"MX_RANK", "1"}, {"RANK", "6"}}));
  EXPECT_EQ(place.role, Role::server);
  EXPECT_EQ(place.rank, 1);
  EXPECT_EQ(place.size, 2);
  EXPECT_EQ(place.workers, 8);
  const Place said = place_of(with(
      kMxrun, {{"MX_ROLE", "server"}, {"MX_RANK", "1"}, {"MX_WORLD_SIZE", "2"}, {"MX_NUM_WORKERS", "8"}}));
  EXPECT_EQ(said.size, 2);
  EXPECT_EQ(said.workers, 8);
  const Place pod = place_of({{"MX_ROLE", "server"},
                              {"JOB_COMPLETION_INDEX", "1"},
                              {"MX_WORLD_SIZE", "4"},
                              {"MX_NUM_SERVERS", "2"},
                              {"MX_RDZV", "job-0.svc:29400"}});
  EXPECT_EQ(pod.rank, 1);
  EXPECT_EQ(pod.size, 2);
  EXPECT_EQ(pod.workers, 4);
  expect_refused(with(kMxrun, {{"MX_ROLE", "server"}, {"MX_RANK", "2"}}), {"MX_RANK=2", "MX_NUM_SERVERS=2"});
}

TEST(Place, MxrunBeatsTheLauncherThatStartedItsAgent) {
  for (const Set& outer : {Set{{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}},
                           Set{{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}},
                           Set{{"JOB_COMPLETION_INDEX", "1"}}}) {
    const Place place = place_of(with(kMxrun, outer));
    EXPECT_EQ(place.started_by, "mxrun");
    EXPECT_EQ(place.rank, 5);
    EXPECT_EQ(place.size, 8);
  }
}

TEST(Place, ReadsThoseOfMpirun) {
  const Place place = place_of({{"OMPI_COMM_WORLD_RANK", "3"},
                                {"OMPI_COMM_WORLD_SIZE", "4"},
                                {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                {"PMIX_RANK", "3"},
                                {"PMIX_NAMESPACE", "prterun-7"},
                                // mpirun starts its daemons with srun.
                                {"SLURM_STEP_ID", "0"},
                                {"SLURM_PROCID", "1"},
                                {"SLURM_NTASKS", "2"}});
  EXPECT_EQ(place.started_by, "mpirun");
  EXPECT_EQ(place.rank, 3);
  EXPECT_EQ(place.size, 4);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.local_size, 2);
  EXPECT_EQ(place.job, "mpirun-prterun-7");
}

TEST(Place, ReadsThoseOfAnMpiexecWithPmi) {
  const Set mpiexec = {
      {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
  const Place place = place_of(mpiexec);
  EXPECT_EQ(place.started_by, "mpiexec");
  EXPECT_EQ(place.rank, 1);
  EXPECT_EQ(place.size, 2);
  EXPECT_EQ(place.local_rank, 1);
  EXPECT_EQ(place.local_size, 2);
  expect_refused(with(mpiexec, {{"MX_RANK", "0"}}), {"MX_RANK=0", "PMI_RANK=1"});
}

// Each of their processes would train alone.
TEST(Place, RefusesTheProcessesOfOtherLaunchers) {
  expect_refused({{"HOROVOD_RANK", "1"}}, {"HOROVOD_RANK", "mxrun"});
  expect_refused({{"DMLC_ROLE", "worker"}, {"DMLC_NUM_WORKER", "2"}}, {"DMLC_ROLE", "mxrun"});
  EXPECT_EQ(place_of(with(kMxrun, {{"HOROVOD_RANK", "1"}})).rank, 5);
}

TEST(Place, ReadsThoseOfSrunOnlyWithinAStep) {
  const Set srun = {{"SLURM_JOB_ID", "77"},        {"SLURM_PROCID", "4"},
                    {"SLURM_NTASKS", "5"},         {"SLURM_LOCALID", "0"},
                    {"SLURM_NODEID", "2"},         {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"},
                    {"SLURM_STEP_NUM_TASKS", "5"}, {"PMIX_RANK", "4"}};
  const Place place = place_of(with(srun, {{"SLURM_STEP_ID", "3"}}));
  EXPECT_EQ(place.started_by, "srun");
  EXPECT_EQ(place.rank, 4);
  EXPECT_EQ(place.size, 5);
  EXPECT_EQ(place.local_rank, 0);
  EXPECT_EQ(place.local_size, 1);
  EXPECT_EQ(place.node, 2);
  EXPECT_EQ(place.job, "slurm-77.3");

  // A batch script that calls no srun: its variables describe the whole allocation.
  const Set batch = {{"SLURM_JOB_ID", "77"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "5"}};
  EXPECT_EQ(place_of(batch).size, 1);
  EXPECT_EQ(place_of(with(batch, {{"SLURM_STEP_ID", "4294967291"}})).size, 1);
  expect_refused(with(srun, {{"SLURM_STEP_ID", "3"}, {"SLURM_STEP_TASKS_PER_NODE", "2(x"}}),
                 {"SLURM_STEP_TASKS_PER_NODE", "2(x"});
}

TEST(Place, ReadsThoseOfAPod) {
  const Set pod = {{"JOB_COMPLETION_INDEX", "2"}, {"MX_WORLD_SIZE", "4"}, {"MX_RDZV", "job-0.svc:29400"}};
  const Place place = place_of(pod);
  EXPECT_EQ(place.started_by, "kubernetes");
  EXPECT_EQ(place.rank, 2);
  EXPECT_EQ(place.size, 4);
  EXPECT_EQ(place.local_size, 1);
  EXPECT_EQ(place.node, 2);
  // A Job of independent pods.
  EXPECT_EQ(place_of({{"JOB_COMPLETION_INDEX", "2"}}).size, 1);
  expect_refused({{"JOB_COMPLETION_INDEX", "2"}, {"MX_WORLD_SIZE", "4"}}, {"MX_RDZV", "rank 2"});
  expect_refused({{"JOB_COMPLETION_INDEX", "2"}, {"MX_RDZV", "job-0.svc:29400"}}, {"MX_WORLD_SIZE"});
}

TEST(Place, RefusesStartMethodsThatDisagree) {
  expect_refused({{"MX_RANK", "0"},
                  {"MX_WORLD_SIZE", "2"},
                  {"OMPI_COMM_WORLD_RANK", "1"},
                  {"OMPI_COMM_WORLD_SIZE", "2"}},
                 {"MX_RANK=0", "OMPI_COMM_WORLD_RANK=1"});
  expect_refused({{"MX_WORLD_SIZE", "3"}, {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}},
                 {"MX_WORLD_SIZE=3", "OMPI_COMM_WORLD_SIZE=2"});
  expect_refused({{"PMIX_RANK", "0"}, {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}},
                 {"PMIX_RANK=0", "OMPI_COMM_WORLD_RANK=1"});
  expect_refused(with(kMxrun, {{"RANK", "4"}}), {"MX_RANK=5", "RANK=4"});
  expect_refused(with(kMxrun, {{"WORLD_SIZE", "4"}}), {"MX_WORLD_SIZE=8", "WORLD_SIZE=4"});
  expect_refused({{"RANK", "1"}, {"WORLD_SIZE", "4"}}, {"RANK=1", "WORLD_SIZE=4"});
}

TEST(Place, RefusesAWorldOfOneWhereMoreWasAsked) {
  expect_refused({{"MX_EXPECT_WORLD_SIZE", "4"}}, {"MX_EXPECT_WORLD_SIZE=4", "one of 1"});
  expect_refused({{"MX_WORLD_SIZE", "4"}}, {"MX_WORLD_SIZE=4", "one of 1"});
  expect_refused({{"MX_RANK", "0"}, {"MX_WORLD_SIZE", "4"}}, {"MX_RDZV"});
  EXPECT_EQ(place_of({{"MX_EXPECT_WORLD_SIZE", "1"}}).size, 1);
}

TEST(Place, RefusesRanksBeyondSizes) {
  expect_refused(with(kMxrun, {{"MX_RANK", "8"}, {"RANK", "8"}}), {"MX_RANK=8", "MX_WORLD_SIZE=8"});
  expect_refused(with(kMxrun, {{"MX_LOCAL_RANK", "4"}}), {"MX_LOCAL_RANK=4", "MX_LOCAL_WORLD_SIZE=4"});
  expect_refused(with(kMxrun, {{"MX_LOCAL_WORLD_SIZE", "9"}}), {"MX_LOCAL_WORLD_SIZE=9", "MX_WORLD_SIZE=8"});
  expect_refused({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "2"}},
                 {"OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_SIZE=2"});
  expect_refused({{"MX_RANK", "0"}, {"MX_RDZV", "h:1"}}, {"MX_WORLD_SIZE", "MX_RANK=0"});
}

TEST(Place, RefusesMalformedNumbersByName) {
  for (const char* name : {"MX_RANK", "MX_WORLD_SIZE", "MX_LOCAL_RANK", "MX_EPOCH", "MX_TIMEOUT_MS",
                           "MX_INCARNATION", "MX_NUM_SERVERS", "RANK"})
    for (const char* value : {"x", "1x", "-1", " 1", "1e3", "99999999999999999999"})
      expect_refused(with(kMxrun, {{name, value}}), {name, value});
  expect_refused(with(kMxrun, {{"MX_ROLE", "boss"}}), {"MX_ROLE", "boss"});
  expect_refused(with(kMxrun, {{"MX_COST_MODEL", "guess"}}),
                 {"MX_COST_MODEL", "'fit' or 'fixed'", "'guess'"});
  EXPECT_FALSE(place_of(with(kMxrun, {{"MX_COST_MODEL", "fixed"}})).fit_cost_model);
  EXPECT_TRUE(place_of(kMxrun).fit_cost_model);
  expect_refused(with(kMxrun, {{"MX_TIMEOUT_MS", "0"}}), {"MX_TIMEOUT_MS", "'0'"});
  expect_refused(with(kMxrun, {{"MX_HEARTBEAT_MS", "900"}}), {"MX_HEARTBEAT_MS", "MX_DEAD_AFTER_MS", "900"});
  expect_refused({{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "a"}}, {"SLURM_PROCID", "'a'"});
  // An empty variable counts as unset.
  EXPECT_EQ(place_of({{"MX_RANK", ""}, {"RANK", ""}}).size, 1);
}

}  // namespace
}  // namespace mx::comm
