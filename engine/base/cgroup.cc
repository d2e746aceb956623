#include "engine/base/cgroup.h"

#include <fstream>
#include <sstream>

namespace mx {

std::vector<std::string> cgroup_folders(const std::string& controller) {
  std::ifstream groups("/proc/self/cgroup");
  return cgroup_folders(controller, groups);
}

std::vector<std::string> cgroup_folders(const std::string& controller, std::istream& groups) {
  std::vector<std::string> folders;
  for (std::string line; std::getline(groups, line);) {
    std::istringstream fields(line);
    std::string id, controllers, path;
    std::getline(fields, id, ':');
    std::getline(fields, controllers, ':');
    std::getline(fields, path);
    std::string root = "/sys/fs/cgroup";
    if (!controllers.empty()) {  // version 1
      if (("," + controllers + ",").find("," + controller + ",") == std::string::npos) continue;
      root += "/" + controllers;
    }
    for (; path.size() > 1; path.resize(path.rfind('/'))) folders.push_back(root + path);
    folders.push_back(root);
  }
  return folders;
}

}  // namespace mx
