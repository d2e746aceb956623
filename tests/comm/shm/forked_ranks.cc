#include "tests/comm/shm/forked_ranks.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "engine/base/error.h"

namespace mx::comm::testing {
namespace {

std::string name_of_current_exception() {
  try {
    throw;
  } catch (const PeerLost& error) {
    return std::string("PeerLost: ") + error.what();
  } catch (const ProtocolError& error) {
    return std::string("ProtocolError: ") + error.what();
  } catch (const Timeout& error) {
    return std::string("Timeout: ") + error.what();
  } catch (const std::exception& error) {
    return std::string("other: ") + error.what();
  }
}

}  // namespace

ForkedRanks::ForkedRanks(int size, const ShmOptions& options, const Body& body)
    : read_(static_cast<size_t>(size)) {
  const ShmGroup memory(size, options);
  for (int rank = 0; rank < size; ++rank) {
    int ends[2];
    if (pipe(ends) != 0) throw CommunicationError("no pipe");
    const pid_t child = fork();
    if (child == 0) {
      close(ends[0]);
      const Say say = [&](const std::string& line) {
        const std::string text = line + "\n";
        if (write(ends[1], text.data(), text.size()) < 0) _exit(3);
      };
      try {
        const std::shared_ptr<Communicator> group = memory.join(rank);
        try {
          body(*group, say);
        } catch (...) {
          say(name_of_current_exception());
        }
      } catch (...) {
        say(name_of_current_exception());
      }
      say("end");
      _exit(0);
    }
    close(ends[1]);
    processes_.push_back(child);
    pipes_.push_back(ends[0]);
  }
}

ForkedRanks::~ForkedRanks() {
  for (const pid_t process : processes_) kill(process, SIGKILL);
  for (const pid_t process : processes_) waitpid(process, nullptr, 0);
  for (const int end : pipes_) close(end);
}

std::string ForkedRanks::line(int rank) {
  std::string& text = read_[static_cast<size_t>(rank)];
  for (;;) {
    const size_t end = text.find('\n');
    if (end != std::string::npos) {
      const std::string line = text.substr(0, end);
      text.erase(0, end + 1);
      return line;
    }
    pollfd wait{pipes_[static_cast<size_t>(rank)], POLLIN, 0};
    if (poll(&wait, 1, 60'000) <= 0) return "silence";
    char bytes[4096];
    const ssize_t count = read(pipes_[static_cast<size_t>(rank)], bytes, sizeof(bytes));
    if (count <= 0) return "";
    text.append(bytes, static_cast<size_t>(count));
  }
}

void ForkedRanks::signal(int rank, int number) { kill(process(rank), number); }

bool is_arena(const void* address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx", &begin, &end) != 2) continue;
    const auto at = reinterpret_cast<uintptr_t>(address);
    if (at >= begin && at < end) return line.find("mx-shm-arena") != std::string::npos;
  }
  return false;
}

}  // namespace mx::comm::testing
