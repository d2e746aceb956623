// Every operator that has a CUDA kernel gives the CPU's results on a GPU: all samples of the registry, in all
// types, layouts and with gradients. Prints a table.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "tests/cuda/operators/compare.h"
#include "tests/cuda/operators/worker.h"

namespace mx {
namespace {

/// Runs the worker until it has seen all operators. After a process that ended early, a new one continues
/// behind the operator that ended it.
std::vector<std::string> table_of_all() {
  std::vector<std::string> table;
  size_t first = 0;
  for (int starts = 0; starts < 40; ++starts) {
    std::array<char, 4096> path{};
    if (readlink("/proc/self/exe", path.data(), path.size() - 1) <= 0) break;
    const std::string command =
        "MX_GPU_TEST_FROM=" + std::to_string(first) + " exec '" + path.data() + "' 2>&1";
    std::FILE* const worker = popen(command.c_str(), "r");
    if (worker == nullptr) break;
    std::string name;
    bool ended = false;
    char* line = nullptr;
    size_t size = 0;
    while (getline(&line, &size, worker) > 0) {
      std::string text = line;
      if (!text.empty() && text.back() == '\n') text.pop_back();
      if (text.rfind("BEGIN ", 0) == 0) {
        first = std::strtoull(text.c_str() + 6, nullptr, 10) + 1;
        name = text.substr(text.rfind(' ') + 1);
      } else if (text.rfind("RESULT ", 0) == 0) {
        table.push_back(text.substr(7));
        std::cout << table.back() << std::endl;
      } else if (text == "LOST") {
        std::cout << "the device was lost by " << name << std::endl;
        name.clear();
      } else if (text == "END") {
        ended = true;
      } else if (!text.empty()) {
        std::cout << text << std::endl;
      }
    }
    std::free(line);
    pclose(worker);
    if (ended) return table;
    if (!name.empty() && (table.empty() || table.back().rfind(name + " |", 0) != 0)) {
      table.push_back(name + " | - | the process ended");
      std::cout << table.back() << std::endl;
    }
  }
  table.push_back("all | - | the processes did not reach the last operator");
  return table;
}

TEST(OperatorsOnGpu, GiveTheResultsOfTheCpu) {
  const Context device = test::tested_device();
  if (device.is_cpu()) GTEST_SKIP() << "there is no GPU";
  int failed = 0;
  const std::vector<std::string> table = table_of_all();
  for (const std::string& line : table) {
    const size_t first = line.find(" | "),
                 second = first == std::string::npos ? first : line.find(" | ", first + 3);
    if (second != std::string::npos && line.compare(second, 4, " | -") != 0) ++failed;
  }
  std::cout << table.size() << " operators on " << device << ", " << failed << " of them failed" << std::endl;
  EXPECT_GT(table.size(), 0u);
  EXPECT_EQ(0, failed);
}

}  // namespace
}  // namespace mx

int main(int argc, char** argv) {
  if (const char* const from = std::getenv("MX_GPU_TEST_FROM"); from != nullptr)
    return mx::test::compare_operators_from(std::strtoull(from, nullptr, 10));
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
