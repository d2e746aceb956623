#include "engine/base/cgroup.h"

#include <gtest/gtest.h>

#include <sstream>

namespace mx {
namespace {

std::vector<std::string> folders_of(const std::string& controller, const std::string& text) {
  std::istringstream groups(text);
  return cgroup_folders(controller, groups);
}

TEST(Cgroup, VersionTwoHasOneHierarchyForAll) {
  const std::string text = "0::/user.slice/job\n";
  const std::vector<std::string> expected = {"/sys/fs/cgroup/user.slice/job", "/sys/fs/cgroup/user.slice",
                                             "/sys/fs/cgroup"};
  EXPECT_EQ(expected, folders_of("cpu", text));
  EXPECT_EQ(expected, folders_of("memory", text));
  EXPECT_EQ(std::vector<std::string>{"/sys/fs/cgroup"}, folders_of("cpu", "0::/\n"));
}

TEST(Cgroup, VersionOneHasOnePerController) {
  const std::string text = "5:cpuset:/a\n4:cpu,cpuacct:/b/c\n3:memory:/\n";
  EXPECT_EQ((std::vector<std::string>{"/sys/fs/cgroup/cpu,cpuacct/b/c", "/sys/fs/cgroup/cpu,cpuacct/b",
                                      "/sys/fs/cgroup/cpu,cpuacct"}),
            folders_of("cpu", text));
  EXPECT_EQ(std::vector<std::string>{"/sys/fs/cgroup/memory"}, folders_of("memory", text));
  EXPECT_TRUE(folders_of("io", text).empty());
  EXPECT_TRUE(folders_of("cpu", "").empty());
}

}  // namespace
}  // namespace mx
