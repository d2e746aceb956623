// The entry of the module for MPI.
#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>

#include "comm/module.h"
#include "comm/mpi/mpi_communicator.h"
#include "comm/mpi/mpi_group.h"
#include "comm/mpi/mpi_thread.h"
#include "engine/base/check.h"

namespace mx::comm {
namespace {

constexpr int64_t kLeavesWithinMs = 10000;

/// Throws InvalidState if MPI sees other processes than the environment says.
void check_place(const Place& place, int rank, int size) {
  MX_CHECK(place.started_by != "mxrun" || size == place.size, InvalidState,
           "[mpi] expected MPI to have started the ", place.size, " processes, got processes that mxrun has ",
           "started, which MPI takes for groups of ", size, "; start them with mpirun -n ", place.size,
           ", or use the transports shm, tcp or shm+tcp");
  MX_CHECK(size == place.size && rank == place.rank, InvalidState, "[mpi] expected rank ", place.rank, " of ",
           place.size, " as in the environment of ", place.started_by, ", got rank ", rank, " of ", size,
           " from MPI; was the program started by another MPI than the one it was built with?");
}

class MpiModule final : public Module {
 public:
  int interface_version() const override { return kModuleInterface; }

  std::shared_ptr<Communicator> make(const ModuleRequest& request) override {
    auto group = std::make_shared<MpiCommunicator>(request.timeout_ms);
    check_place(request.place, group->rank(), group->size());
    return group;
  }

  std::string share_from_first(const Place& place, const std::string& value) override {
    const auto result = std::make_shared<std::string>(value);  // the job goes on after its deadline
    MpiThread& thread = MpiThread::get(place.timeout_ms);
    thread.run(
        [result, place] {
          int rank = 0, size = 0;
          MPI_Comm_rank(MPI_COMM_WORLD, &rank);
          MPI_Comm_size(MPI_COMM_WORLD, &size);
          check_place(place, rank, size);
          uint64_t bytes = result->size();
          check_mpi(MPI_Bcast(&bytes, sizeof bytes, MPI_BYTE, 0, MPI_COMM_WORLD), "MPI_Bcast");
          result->resize(bytes);
          check_mpi(MPI_Bcast(result->data(), static_cast<int>(bytes), MPI_BYTE, 0, MPI_COMM_WORLD),
                    "MPI_Bcast");
        },
        place.timeout_ms, "the exchange of addresses");
    return *result;
  }

  void finish(bool after_failure) noexcept override {
    MpiThread* const thread = MpiThread::if_used();
    if (thread == nullptr) return;
    // The program may end in its middle, while others wait for this process in their calls.
    thread->add({[] { MpiGroup::leave_all(); }, [](const std::exception_ptr&) {}, kLeavesWithinMs,
                 "the end of the groups"});
    thread->finalise(after_failure);
  }
};

}  // namespace
}  // namespace mx::comm

extern "C" __attribute__((visibility("default"))) mx::comm::Module* mx_comm_module() {
  // Never destroyed: used when the process ends.
  static mx::comm::MpiModule& module = *new mx::comm::MpiModule;
  return &module;
}
