// require_writable: finds out early whether a program can write its results.
#pragma once

#include <string>

#include "engine/base/check.h"
#include "ndarray/io/atomic_file.h"

namespace mx::examples {

/// Throws FileError, whose message names the reason, if no file can be written at `path`. Changes nothing
/// there: an existing file keeps its content. Training programs call it first, because they write after
/// minutes of work that would be lost.
inline void require_writable(const std::string& path) { const io::AtomicFile probe(path); }

/// Checks the options --save and --resume of a training program. Throws InvalidArgument for --resume without
/// a file, and FileError if the checkpoint cannot be written.
inline void require_checkpoint(const std::string& save, bool resume) {
  MX_CHECK(!resume || !save.empty(), InvalidArgument,
           "[--resume] expected the file of the checkpoint, --save, got none");
  if (!save.empty()) require_writable(save);
}

}  // namespace mx::examples
