#include "comm/hosts/machine.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

namespace mx::comm {

namespace {

std::string inode_of(const char* path) {
  struct stat about {};
  return stat(path, &about) == 0 ? std::to_string(about.st_ino) : std::string();
}

// "HOST BOOT_ID NETWORK USERS USER". Host names have no spaces, but nothing here depends on that.
size_t end_of_boot_id(const std::string& machine) {
  size_t end = machine.size();
  for (int fields = 0; fields < 3 && end != 0 && end != std::string::npos; ++fields)
    end = machine.rfind(' ', end - 1);
  return end;
}

}  // namespace

std::string machine_of(const std::string& host) {
  std::string boot_id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
  return host + ' ' + boot_id + ' ' + inode_of("/proc/self/ns/net") + ' ' + inode_of("/proc/self/ns/user") +
         ' ' + std::to_string(geteuid());
}

bool is_same_boot(const std::string& machine, const std::string& other) {
  return machine.substr(0, end_of_boot_id(machine)) == other.substr(0, end_of_boot_id(other));
}

}  // namespace mx::comm
