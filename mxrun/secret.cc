#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "comm/net/secret.h"
#include "engine/base/check.h"
#include "mxrun/supervisor.h"

namespace mx::launch {
namespace {

constexpr size_t kLongestSecret = 1024;

}  // namespace

std::string new_secret() { return comm::random_secret(); }

std::string secret_from_file(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  MX_CHECK(fd >= 0, AuthenticationError, "--secret-file: cannot read ", path, ": ", strerror(errno));
  struct stat info {};
  char text[kLongestSecret + 1];
  const bool known = fstat(fd, &info) == 0;
  const ssize_t size = read(fd, text, sizeof(text));
  close(fd);
  MX_CHECK(known && (info.st_mode & 077) == 0, AuthenticationError,
           "--secret-file: expected a file that only its owner can read, got ", path, "; try: chmod 600 ",
           path);
  std::string secret(text, size > 0 ? static_cast<size_t>(size) : 0);
  // Processes that read the same file take off both, too: comm::read_secret_file().
  if (secret.ends_with('\n')) secret.pop_back();
  if (secret.ends_with('\r')) secret.pop_back();
  MX_CHECK(!secret.empty() && secret.size() <= kLongestSecret && secret.find('\n') == std::string::npos,
           AuthenticationError, "--secret-file: expected one line of 1 to ", kLongestSecret, " bytes, got ",
           size, " bytes in ", path);
  return secret;
}

}  // namespace mx::launch
