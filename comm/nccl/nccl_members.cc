#include "comm/nccl/nccl_members.h"

#include <map>
#include <mutex>
#include <set>

#include "comm/nccl/nccl_communicator.h"

namespace mx::comm {
namespace {

/// The ranks of one group that are in this process.
struct Members {
  std::set<NcclCommunicator*> alive;
  std::vector<NcclHandles> ended;
};

struct AllMembers {
  std::mutex mutex;
  std::map<std::string, Members> groups;  // by NCCL's id
};
AllMembers& all_members() {
  static AllMembers& all = *new AllMembers;  // never destroyed: static destructors may end communicators
  return all;
}

}  // namespace

// Not cudaFree(), which waits until the device is idle, and every thread with it.
void NcclHandles::release() noexcept {
  for (auto& [memory, bytes] : rooms)
    if (memory != nullptr) (void)cudaFreeAsync(memory, stream);
  rooms.clear();
  if (event != nullptr) (void)cudaEventDestroy(std::exchange(event, nullptr));
  if (stream != nullptr) (void)cudaStreamDestroy(std::exchange(stream, nullptr));
  (void)cudaGetLastError();
}

void join_members(const std::string& id, NcclCommunicator* communicator) {
  const std::lock_guard lock(all_members().mutex);
  all_members().groups[id].alive.insert(communicator);
}

std::vector<NcclHandles> leave_members(const std::string& id, NcclCommunicator* communicator,
                                       NcclHandles handles) {
  const std::lock_guard lock(all_members().mutex);
  const auto found = all_members().groups.find(id);
  if (found == all_members().groups.end()) return {std::move(handles)};  // the group was not made
  Members& members = found->second;
  members.alive.erase(communicator);
  members.ended.push_back(std::move(handles));
  if (!members.alive.empty()) return {};
  std::vector<NcclHandles> ended = std::move(members.ended);
  all_members().groups.erase(found);
  return ended;
}

void interrupt_members(int device, const std::exception_ptr& reason) {
  const std::lock_guard lock(all_members().mutex);
  for (const auto& [id, members] : all_members().groups)
    for (NcclCommunicator* member : members.alive)
      if (member->device_id() == device) member->mark_as_failed(reason);
}

}  // namespace mx::comm
