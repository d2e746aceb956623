// Modules: where they are looked for, and what is said if they are missing.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

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

// Builds without MPI or without CUDA lack a module. Its error says where it was looked for and what to
// install.
TEST(Module, AMissingModuleSaysWhatIsMissing) {
  const std::pair<const char*, const char*> modules[] = {{"mpi", "libopenmpi-dev"}, {"nccl", "NCCL"}};
  for (const auto& [name, package] : modules) {
    try {
      EXPECT_EQ(kModuleInterface, load_module(name).interface_version());
    } catch (const InvalidState& e) {
      const std::string text = e.what(), file = std::string("libmx_comm_") + name + ".so";
      for (const std::string& part :
           {file, std::string("../modules"), std::string("MX_MODULE_PATH"), std::string(package)})
        EXPECT_NE(std::string::npos, text.find(part)) << part << " is not in " << text;
    }
  }
}

// The linker refuses such a file as it refuses a module whose library, such as libmpi, is not installed.
TEST(Module, AModuleThatCannotBeOpenedIsPassedOver) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("mx_module_test." + std::to_string(getpid()));
  const std::filesystem::path file = folder / "libmx_comm_mpi.so";
  std::filesystem::create_directory(folder);
  std::ofstream(file) << "no library";
  setenv("MX_MODULE_PATH", folder.c_str(), 1);
  bool there = false;
  std::string text;
  try {
    there = load_module("mpi").interface_version() == kModuleInterface;
  } catch (const InvalidState& e) {
    text = e.what();
  }
  unsetenv("MX_MODULE_PATH");
  std::filesystem::remove_all(folder);
  // Where the build has the module, it is found in a later folder.
  if (!there) {
    EXPECT_NE(std::string::npos, text.find(file.string() + ": /")) << text;
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
