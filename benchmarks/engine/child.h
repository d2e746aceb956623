// The measuring process: one case of one system, started by the driver with the processors it may use.
#pragma once

#include <string>
#include <vector>

#include "benchmarks/engine/measure.h"

namespace mx::bench {

/// The arguments that make `program` run this job as a child.
std::vector<std::string> child_arguments(const std::string& program, const Job& job);

/// Whether this process was started with child_arguments().
bool is_child(int argc, char** argv);

/// Runs the job that the arguments describe and emits its values; the exit status.
int child_main(int argc, char** argv);

}  // namespace mx::bench
