#include "comm/mpi/mpi_communicator.h"

#include <utility>

#include "comm/mpi/mpi_group.h"

namespace mx::comm {

MpiCommunicator::MpiCommunicator(int64_t timeout_ms) : thread_(MpiThread::get()), timeout_ms_(timeout_ms) {
  struct Made {
    std::shared_ptr<MpiGroup> group;
    std::vector<std::string> hosts;
  };
  // Shared, because the job goes on after its deadline, and this object does not exist then.
  const auto made = std::make_shared<Made>();
  thread_.run(
      [made] {
        made->group = std::make_shared<MpiGroup>();
        made->hosts = made->group->hosts();
      },
      Deadline::after_ms(timeout_ms), "the making of a group");
  group_ = std::move(made->group);
  hosts_ = std::move(made->hosts);
}

MpiCommunicator::~MpiCommunicator() {
  // Runs after the calls that are queued. All processes destroy their groups in the same order.
  thread_.add({[group = group_] { group->free(); }, [](std::exception_ptr) {},
               Deadline::after_ms(timeout_ms_), "the end of a group"});
}

const std::string& MpiCommunicator::type() const {
  static const std::string name = "mpi";
  return name;
}

int MpiCommunicator::rank() const { return group_->rank(); }
int MpiCommunicator::size() const { return group_->size(); }

void MpiCommunicator::start(Request request) {
  check_request(request, rank(), size());
  const int64_t limit = request.options.timeout_ms > 0 ? request.options.timeout_ms : timeout_ms_;
  auto done = std::exchange(request.done, nullptr);
  if (!done) done = [](std::exception_ptr) {};
  std::string what = describe(request);
  thread_.add({[&thread = thread_, group = group_, request = std::move(request)] {
                 try {
                   group->execute(request);
                 } catch (...) {
                   // Messages of the failed call may be left in the group, so no other call may follow.
                   thread.abort(std::current_exception());
                   throw;
                 }
               },
               std::move(done), Deadline::after_ms(limit), std::move(what)});
}

}  // namespace mx::comm
