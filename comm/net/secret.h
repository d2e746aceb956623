// The secret of the job, which all its processes share and nobody else knows.
//
// mxrun hands it to the ranks through a pipe: the environment variable MX_SECRET_FD is the number of the
// descriptor. So it is neither in a command line nor in the environment, which others can read.
//
// Messages never contain a secret.
//
// Thread-safety: any thread.
#pragma once

#include <cstddef>
#include <string>

#include "comm/deadline.h"

namespace mx::comm {

inline constexpr size_t kLongestSecret = 1024;

/// Returns the secret of this process: read at the first call from the descriptor named by MX_SECRET_FD,
/// which is then closed. Empty if the variable is not set. Throws InvalidArgument if the variable or the
/// content is malformed.
const std::string& job_secret();

/// Reads a secret from a descriptor up to its end: one line, with or without its end of line. Does not close
/// the descriptor. Throws InvalidArgument if it is empty, longer than kLongestSecret or more than one line,
/// and Timeout if the end does not come, because somebody keeps the other end of a pipe open.
std::string read_secret(int descriptor, const std::string& name,
                        Deadline deadline = Deadline::after_ms(10000));

/// Reads a secret from a file. Throws InvalidArgument also if the file is not a regular file or if its group
/// or others may access it: chmod 600.
std::string read_secret_file(const std::string& path);

/// Returns a new secret: 256 unpredictable bits in hexadecimal digits.
std::string random_secret();

}  // namespace mx::comm
