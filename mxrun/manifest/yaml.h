// YAML: prints JSON values in YAML's block style, for people to read and kubectl to apply.
//
// Thread-safety: any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace mx::launch {

/// Returns the value in block style, with maps in the order of their keys. Strings that YAML could take for
/// another type are quoted as in JSON. Throws InvalidArgument for a string that is not UTF-8.
std::string to_yaml(const nlohmann::ordered_json& value);
/// Returns several documents, separated by "---".
std::string to_yaml(const std::vector<nlohmann::ordered_json>& documents);

}  // namespace mx::launch
