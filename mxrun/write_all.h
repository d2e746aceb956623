// Writing to a descriptor that may take less than all at once.
//
// Thread-safety: any thread.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstddef>

namespace mx::launch {

/// Returns false, with errno, if not all could be written.
inline bool write_all(int fd, const char* text, size_t size) {
  while (size > 0) {
    const ssize_t done = write(fd, text, size);
    if (done < 0) {
      if (errno == EINTR) continue;
      return false;
    }
    text += done;
    size -= static_cast<size_t>(done);
  }
  return true;
}

}  // namespace mx::launch
