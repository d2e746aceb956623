#include "comm/world.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>

#include "comm/job.h"

namespace mx::comm {

namespace {

std::atomic<Job*> the_job{nullptr};
pid_t job_process = 0;  // written before the_job

Job& job() {
  // Never destroyed: see comm/job.h.
  static Job* const created = [] {
    Job* const made = new Job(find_place());
    job_process = ::getpid();
    the_job.store(made);
    return made;
  }();
  return *created;
}

void leave_job(int status) {
  Job* const left = the_job.load();
  // A forked child is no process of the job.
  if (left != nullptr && job_process == ::getpid()) left->leave(status == 0);
}

// Handlers run in the opposite order of their registration. That of the default engine, which drains it, is
// registered on the engine's first use, normally by main(). This one is registered earlier, before main(),
// and so runs later: operations that use a group still find it. on_exit() tells the status, which decides
// whether the process ended as it should.
[[maybe_unused]] const int leaves_at_exit = ::on_exit([](int status, void*) { leave_job(status); }, nullptr);

}  // namespace

const Place& place() { return job().place(); }
std::shared_ptr<Communicator> world() { return job().world(); }
std::shared_ptr<Communicator> new_group(const std::string& transport) { return job().new_group(transport); }
std::shared_ptr<Rendezvous> rendezvous() { return job().rendezvous(); }
void report_step(int64_t step) { job().report_step(step); }

}  // namespace mx::comm
