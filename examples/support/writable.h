// require_writable: finds out early whether a program can write its results.
#pragma once

#include <string>

#include "ndarray/io/atomic_file.h"

namespace mx::examples {

/// Throws FileError, whose message names the reason, if no file can be written at `path`. Changes nothing
/// there: an existing file keeps its content. Training programs call it first, because they write after
/// minutes of work that would be lost.
inline void require_writable(const std::string& path) { const io::AtomicFile probe(path); }

}  // namespace mx::examples
