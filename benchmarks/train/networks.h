// The networks of the training benchmark (runner.h), made of our modules.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ndarray/ndarray.h"
#include "nn/containers.h"

namespace mx::bench {

/// Returns the names of the networks.
std::vector<std::string> network_names();
/// Returns a new network. The name must be one of network_names().
nn::Sequential make_network(const std::string& name);
/// Returns a random batch of that many samples.
NDArray make_input(const std::string& name, int64_t batch);

}  // namespace mx::bench
