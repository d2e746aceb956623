#include "comm/world.h"

#include <atomic>

#include "comm/job.h"
#include "comm/module.h"
#include "comm/rendezvous/lost.h"
#include "engine/base/check.h"

namespace mx::comm {

namespace {

std::atomic<Job*> the_job{nullptr};

Job& job() {
  // Never destroyed: see comm/job.h.
  static Job* const created = [] {
    Job* const made = new Job(find_place());
    the_job.store(made);
    return made;
  }();
  return *created;
}

// A forked child has the job of its parent, but not its threads and connections.
Job& job_of_this_process(const char* function) {
  Job& found = job();
  MX_CHECK(found.process().is_here(), InvalidState, "[", function,
           "] expected a process of the job, got a child that it forked");
  return found;
}

bool leave_job(int status) {
  Job* const left = the_job.load();
  if (left == nullptr || !left->process().is_here()) return false;
  const bool failed = left->knows_failure();
  if (status == 0)
    left->leave(true);
  else
    left->abort_at_exit();
  return failed || left->knows_failure();  // another process may have been lost meanwhile
}

[[maybe_unused]] const bool leaves_at_exit = (call_before_modules_finish(leave_job), true);

}  // namespace

const Place& place() { return job().place(); }
std::shared_ptr<Communicator> world() { return job_of_this_process("world").world(); }
std::shared_ptr<Communicator> new_group(const std::string& transport) {
  return job_of_this_process("new_group").new_group(transport);
}
std::shared_ptr<Rendezvous> rendezvous() { return job_of_this_process("rendezvous").rendezvous(); }
void check_processes() { job_of_this_process("check_processes").check(); }
std::string cause_of_loss(const LostProcess& lost) {
  return job_of_this_process("cause_of_loss").cause_of(lost);
}
void report_step(int64_t step) { job_of_this_process("report_step").report_step(step); }

}  // namespace mx::comm
