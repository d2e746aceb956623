#include "comm/net/secret.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "comm/net/bytes.h"
#include "comm/net/openssl.h"
#include "comm/net/socket.h"
#include "engine/base/check.h"
#include "engine/base/error.h"

namespace mx::comm {
namespace {

std::string secret_of_process() {
  const char* variable = std::getenv("MX_SECRET_FD");
  if (!variable || !*variable) return {};
  int descriptor = -1;
  const char* end = variable + std::strlen(variable);
  const auto [stop, error] = std::from_chars(variable, end, descriptor);
  MX_CHECK(error == std::errc() && stop == end && descriptor >= 0, InvalidArgument,
           "[secret] expected MX_SECRET_FD to be the number of a descriptor, got ", in_quotes(variable));
  std::string secret =
      read_secret(descriptor, mx::detail::concat("descriptor ", descriptor, " (MX_SECRET_FD)"));
  close(descriptor);
  return secret;
}

}  // namespace

const std::string& job_secret() {
  static const std::string secret = secret_of_process();
  return secret;
}

std::string read_secret(int descriptor, const std::string& name, Deadline deadline) {
  std::array<char, kLongestSecret + 3> buffer{};  // "\r\n" and one byte too many
  size_t filled = 0;
  while (filled < buffer.size()) {
    pollfd entry{descriptor, POLLIN, 0};
    const int ready = poll(&entry, 1, deadline.poll_ms());
    if (ready < 0 && errno == EINTR) continue;
    MX_CHECK(ready != 0, Timeout, "[secret] expected the end of ", name, " until the deadline, got none");
    const ssize_t n = read(descriptor, buffer.data() + filled, buffer.size() - filled);
    if (n < 0 && errno == EINTR) continue;
    MX_CHECK(n >= 0, InvalidArgument, "[secret] expected to read ", name, ", got ", std::strerror(errno));
    if (n == 0) break;
    filled += static_cast<size_t>(n);
  }
  std::string secret(buffer.data(), filled);
  OPENSSL_cleanse(buffer.data(), buffer.size());
  if (secret.ends_with('\n')) secret.pop_back();
  if (secret.ends_with('\r')) secret.pop_back();
  MX_CHECK(!secret.empty(), InvalidArgument, "[secret] expected a secret in ", name, ", got nothing");
  MX_CHECK(secret.size() <= kLongestSecret, InvalidArgument, "[secret] expected at most ", kLongestSecret,
           " bytes in ", name, ", got more");
  MX_CHECK(secret.find('\n') == std::string::npos && secret.find('\0') == std::string::npos, InvalidArgument,
           "[secret] expected one line in ", name, ", got more");
  return secret;
}

std::string read_secret_file(const std::string& path) {
  // Non-blocking, so that a pipe in place of the file is refused and not waited for.
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  MX_CHECK(file, InvalidArgument, "[secret] expected a secret in file ", in_quotes(path), ", got ",
           std::strerror(errno));
  // The opened file is examined and not its path, which could mean another file by now.
  struct stat status {};
  MX_CHECK(fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode), InvalidArgument,
           "[secret] expected a regular file, got ", in_quotes(path));
  MX_CHECK((status.st_mode & 077) == 0, InvalidArgument, "[secret] expected file ", in_quotes(path),
           " to be accessible to its owner only, got access for others; run chmod 600");
  MX_CHECK(status.st_uid == geteuid() || status.st_uid == 0, InvalidArgument, "[secret] expected file ",
           in_quotes(path), " to belong to this user, got the one of user ", status.st_uid);
  return read_secret(file.get(), mx::detail::concat("file ", in_quotes(path)));
}

std::string random_secret() {
  std::array<uint8_t, 32> bytes{};
  prepare_openssl();
  MX_CHECK(RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) == 1, CommunicationError,
           "[secret] expected random bytes, got an error of OpenSSL");
  std::string text = to_hex({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  OPENSSL_cleanse(bytes.data(), bytes.size());
  return text;
}

}  // namespace mx::comm
