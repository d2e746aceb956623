// Processes end cleanly whatever the engine is doing: exit code 0 and nothing on any output.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>

#include "engine/base/check.h"

namespace mx {
namespace {

struct Result {
  int status = -1;
  std::string output;
};

Result run(const std::string& what, const std::string& mode) {
  std::string path(4096, '\0');
  path.resize(static_cast<size_t>(readlink("/proc/self/exe", path.data(), path.size())));
  path = path.substr(0, path.rfind('/') + 1) + "engine_exit_program";
  const std::string command = "MX_ENGINE=" + mode + " '" + path + "' '" + what + "' 2>&1";
  Result result;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return result;
  std::array<char, 4096> buffer;
  for (size_t n; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    result.output.append(buffer.data(), n);
  result.status = pclose(pipe);
  return result;
}

class Exit : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(While, Exit,
                         ::testing::Values("static object", "exit from a thread", "segment",
                                           "asynchronous work", "engine on the heap", "forked child"));

TEST_P(Exit, IsClean) {
  for (const char* mode : {"threaded", "naive", "check", "fuzz:3"}) {
    for (int round = 0; round < 5; ++round) {
      SCOPED_TRACE(mode);
      const Result result = run(GetParam(), mode);
      EXPECT_EQ(0, result.status);
      EXPECT_EQ("", result.output);
      if (HasFailure()) return;
    }
  }
}

TEST(ExitInsideAnOperation, KeepsItsStatus) {
  for (const char* mode : {"threaded", "naive", "check", "fuzz:3"}) {
    for (const char* what : {"exit inside an operation", "exit inside an operation of another engine"}) {
      for (int round = 0; round < 5; ++round) {
        SCOPED_TRACE(detail::concat(mode, ": ", what));
        const Result result = run(what, mode);
        ASSERT_TRUE(WIFEXITED(result.status)) << result.status;
        EXPECT_EQ(3, WEXITSTATUS(result.status));
        EXPECT_EQ("", result.output);
        if (HasFailure()) return;
      }
    }
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they map more than any limit
TEST(FewThreads, AreUsedAsFarAsThereAreAny) {
  for (const char* mode : {"threaded", "naive", "check", "fuzz:3"}) {
    SCOPED_TRACE(mode);
    const Result result = run("few threads", mode);
    EXPECT_EQ(0, result.status);
    const bool workers = mode[0] == 't' || mode[0] == 'c';
    EXPECT_EQ(workers, result.output.find("running with") != std::string::npos) << result.output;
  }
}

TEST(FewThreads, NoneAtAllIsAnErrorOfTheLibrary) {
  for (const char* mode : {"threaded", "naive"}) {
    SCOPED_TRACE(mode);
    const Result result = run("no threads", mode);
    EXPECT_EQ(0, result.status) << result.output;
  }
}
#endif

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they map more than any limit
TEST(OutOfMemory, InAPushIsAnErrorAndNoMore) {
  for (const char* mode : {"threaded", "naive", "check", "fuzz:3"}) {
    SCOPED_TRACE(mode);
    const Result result = run("out of memory", mode);
    EXPECT_EQ(0, result.status);
    EXPECT_EQ("", result.output);
  }
}
#endif

}  // namespace
}  // namespace mx
