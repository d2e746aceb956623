// A separate temporary folder for each test, and the files in it.
#pragma once

#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "ndarray/io/byte_sink.h"

namespace mx::test {

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "mx_io_XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) std::abort();
    path_ = pattern;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;

  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }
  /// Returns the number of files in the folder.
  size_t count() const {
    const std::filesystem::directory_iterator all(path_);
    return static_cast<size_t>(std::distance(begin(all), end(all)));
  }

 private:
  std::string path_;
};

inline std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void spill(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline io::Bytes bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

/// Returns a Python that has the packages of an interchange test, or "". Tries $MX_TEST_PYTHON, else python3,
/// else the system's Python, which may not be the first one in the path.
inline std::string python_with(const std::string& modules) {
  const char* const named = std::getenv("MX_TEST_PYTHON");
  std::vector<std::string> candidates = {"python3", "/usr/bin/python3"};
  if (named != nullptr) candidates = {named};
  for (const std::string& python : candidates) {
    const std::string command = python + " -c 'import " + modules + "' >/dev/null 2>&1";
    if (std::system(command.c_str()) == 0) return python;
  }
  return "";
}

/// Runs a script; its standard error appears in the test's output. Returns true if the exit code is 0.
inline bool run_python(const std::string& python, const TempFolder& folder, const std::string& script) {
  const std::string path = folder / "script.py";
  spill(path, script);
  return std::system(("cd '" + folder.path() + "' && " + python + " script.py").c_str()) == 0;
}

}  // namespace mx::test
