// The entry of the module for NCCL.
#include "comm/module.h"
#include "comm/nccl/nccl_communicator.h"
#include "engine/base/error.h"

namespace mx::comm {
namespace {

class NcclModule final : public Module {
 public:
  int interface_version() const override { return kModuleInterface; }
  std::shared_ptr<Communicator> make(const ModuleRequest& request) override {
    return std::make_shared<NcclCommunicator>(request);
  }
  std::string share_from_first(const Place&, const std::string&) override {
    throw InvalidState("[nccl] NCCL has no exchange of its own; processes need a rendezvous");
  }
};

}  // namespace
}  // namespace mx::comm

extern "C" __attribute__((visibility("default"))) mx::comm::Module* mx_comm_module() {
  // Never destroyed: used when the process ends.
  static mx::comm::NcclModule& module = *new mx::comm::NcclModule;
  return &module;
}
