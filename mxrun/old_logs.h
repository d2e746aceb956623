// Log files that an earlier job has left in a folder of --log-dir.
//
// Thread-safety: any thread, as long as no other job writes into the folder.
#pragma once

#include <string>

namespace mx::launch {

/// Removes the log files of the job that the folder's job.json describes: those of its workers and servers,
/// of every start of the group. Otherwise the logs of ranks that the next job does not have would look like
/// that job's. Removes nothing else, and nothing at all without a job.json that mxrun has written.
void remove_old_logs(const std::string& folder);

}  // namespace mx::launch
