// What mx-info prints: the build, the machine, its devices, and the libraries that are loaded only when they
// are used.
//
// Thread-safety: one thread at a time.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace mx::info {

struct Section {
  std::string name;
  std::vector<std::pair<std::string, std::string>> facts;  ///< name and value, in the order of printing
};

/// Collects everything. Starts each GPU for a moment, and loads the libraries of CUDA and the modules of mx
/// if they are there. A part that cannot be used is a fact, not an error.
std::vector<Section> collect();

/// One line for each fact, aligned.
std::string to_text(const std::vector<Section>& sections);
/// An object of objects of strings, for programs.
std::string to_json(const std::vector<Section>& sections);

}  // namespace mx::info
