// The measuring process: measures one case of one system. The driver starts it, confined to its processors.
#pragma once

#include <string>
#include <vector>

#include "benchmarks/engine/measure.h"

namespace mx::bench {

/// Returns the arguments that make `program` run this job as a child.
std::vector<std::string> child_arguments(const std::string& program, const Job& job);

/// Returns true if this process was started with child_arguments().
bool is_child(int argc, char** argv);

/// Runs the job that the arguments describe and emits its values. Returns the exit status.
int child_main(int argc, char** argv);

}  // namespace mx::bench
