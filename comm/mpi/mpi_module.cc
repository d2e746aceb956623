// The entry of the module for MPI.
#include <mpi.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "comm/module.h"
#include "comm/mpi/mpi_communicator.h"
#include "comm/mpi/mpi_thread.h"
#include "engine/base/check.h"

namespace mx::comm {
namespace {

class MpiModule final : public Module {
 public:
  int interface_version() const override { return kModuleInterface; }

  std::shared_ptr<Communicator> make(const ModuleRequest& request) override {
    auto group = std::make_shared<MpiCommunicator>(request.timeout_ms);
    MX_CHECK(group->size() == request.place.size && group->rank() == request.place.rank, InvalidState,
             "[mpi] expected rank ", request.place.rank, " of ", request.place.size,
             " as in the environment of ", request.place.started_by, ", got rank ", group->rank(), " of ",
             group->size(),
             " from MPI; was the program started by another MPI than the one it was built with?");
    return group;
  }

  std::string share_from_first(const Place& place, const std::string& value) override {
    const auto result = std::make_shared<std::string>(value);  // the job goes on after its deadline
    MpiThread::get().run(
        [result] {
          uint64_t bytes = result->size();
          check_mpi(MPI_Bcast(&bytes, sizeof bytes, MPI_BYTE, 0, MPI_COMM_WORLD), "MPI_Bcast");
          result->resize(bytes);
          check_mpi(MPI_Bcast(result->data(), static_cast<int>(bytes), MPI_BYTE, 0, MPI_COMM_WORLD),
                    "MPI_Bcast");
        },
        place.timeout_ms, "the exchange of addresses");
    return *result;
  }

  void finish() noexcept override { MpiThread::get().finalise(); }
};

}  // namespace
}  // namespace mx::comm

extern "C" __attribute__((visibility("default"))) mx::comm::Module* mx_comm_module() {
  // Never destroyed: used when the process ends.
  static mx::comm::MpiModule& module = *new mx::comm::MpiModule;
  return &module;
}
