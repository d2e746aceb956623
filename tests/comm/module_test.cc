// Modules: where they are looked for, and what is said if they are missing.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "comm/module.h"
#include "engine/base/error.h"

namespace mx::comm {
namespace {

TEST(Module, FoldersOfTheEnvironmentComeFirst) {
  setenv("MX_MODULE_PATH", "/first::/second", 1);
  const auto folders = module_folders();
  unsetenv("MX_MODULE_PATH");
  ASSERT_GE(folders.size(), 3u);
  EXPECT_EQ("/first", folders[0]);
  EXPECT_EQ("/second", folders[1]);
  EXPECT_EQ(folders.size() - 2, module_folders().size());
}

TEST(Module, AnUnknownNameIsRefused) { EXPECT_THROW(load_module("quic"), InvalidArgument); }

// The module for NCCL is missing in builds without CUDA. Its error says where it was looked for.
TEST(Module, AMissingModuleSaysWhatIsMissing) {
  try {
    EXPECT_EQ(kModuleInterface, load_module("nccl").interface_version());
  } catch (const InvalidState& e) {
    const std::string text = e.what();
    EXPECT_NE(std::string::npos, text.find("libmx_comm_nccl.so")) << text;
    EXPECT_NE(std::string::npos, text.find("../modules")) << text;
    EXPECT_NE(std::string::npos, text.find("MX_MODULE_PATH")) << text;
  }
}

// A group of several ranks over NCCL needs a GPU and a rendezvous; without them the error says so.
TEST(Module, NcclSaysWhatItNeeds) {
  ModuleRequest request;
  request.place.size = 2;
  try {
    load_module("nccl").make(request);
    FAIL() << "expected an error";
  } catch (const InvalidState& e) {
    EXPECT_NE(nullptr, e.what());
  }
}

}  // namespace
}  // namespace mx::comm
