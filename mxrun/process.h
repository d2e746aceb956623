// Starting one process of the program.
//
// Thread-safety: any thread; but the process that is started ends when the thread that started it ends.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace mx::launch {

/// Where a program was found, or why it cannot be run.
struct FoundProgram {
  std::string path;
  int exit_code = 0;    ///< 126: not executable, 127: not found
  std::string problem;  ///< one line for people
};
/// Looks a program up as a shell does: in PATH, unless the name contains a slash.
FoundProgram find_program(const std::string& name, const char* path_variable, const std::string& folder);

struct SpawnRequest {
  std::string path;
  std::vector<std::string> argv;
  std::vector<std::string> environment;  ///< all of it, "NAME=VALUE"
  std::string folder;
  bool keep_stdin = false;  ///< else standard input is empty
  std::vector<int> cpus;    ///< the processors to run on; empty: as this process
  std::string secret;       ///< what the process can read from secret_fd
  int secret_fd = -1;       ///< number of the file descriptor in the process; -1: none
};

struct Spawned {
  pid_t pid = -1;
  int pidfd = -1;                ///< readable when the process has ended; -1: not available
  int out_fd = -1, err_fd = -1;  ///< non-blocking ends of its standard output and error
  int exit_code = 0;             ///< 126 or 127 if it could not be started
  std::string problem;           ///< why
  bool lasting = false;          ///< another attempt would fail, too: the program itself cannot be executed
};

/// Starts a process in a process group of its own. The signals that this process blocks are not blocked
/// there, signals that were ignored when this process started stay ignored, and it dies with this process.
/// No file descriptors but 0, 1, 2 and the secret reach it. Returns after exec() succeeded or failed.
Spawned spawn(const SpawnRequest& request);

/// Creates a pipe with both ends close-on-exec. Throws OutOfMemory if the system has none left.
void make_pipe(int ends[2]);

}  // namespace mx::launch
