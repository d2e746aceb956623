// LoadPlan: assigns the entries of a dictionary to the arrays of an object that is loaded, and finds all
// mismatches before anything is changed. Internal: modules and optimisers use it.
#pragma once

#include <source_location>
#include <string>
#include <vector>

#include "ndarray/save.h"

namespace mx::detail {

/// An array that an object expects under one name.
struct LoadTarget {
  std::string name;
  NDArray array;  ///< has the expected shape and type
  /// Identifies the array, for example by the slot of its Parameter. Targets with the same pointer are one
  /// array under several names; an entry for one of the names is enough. Null: the array has one name.
  const void* place = nullptr;
};

enum class LoadTypes {
  same,     ///< an entry must have the target's type
  converts  ///< or a type of the same or a lower category: an integer fits a floating-point target
};

struct LoadPlan {
  std::vector<NDArray> sources;         ///< one for each target; an empty handle if there is no entry
  std::vector<std::string> missing;     ///< names of targets without an entry
  std::vector<std::string> unexpected;  ///< names of entries without a target

  /// Throws InvalidArgument, with a line for each problem, if there are any: shapes and types that do not
  /// fit, empty handles, duplicate names; if `strict`, missing and unexpected names too. The message begins
  /// "[op] expected the arrays of <what>, got 2 problems:". Its last line is the source location of the call,
  /// if it is given.
  void raise(const std::string& op, const std::string& what, bool strict,
             const std::source_location* where = nullptr) const;

  /// Prepares the sources for being copied into the targets of plan_load(). Waits for them, so the error of a
  /// poisoned source is thrown before anything is changed. Copies those that share memory with a target, so
  /// that an object's own arrays can be exchanged.
  void read_sources(const std::vector<LoadTarget>& targets);

  std::vector<std::string> problems;  ///< messages that are raised even if not `strict`
  std::vector<std::string> absences;  ///< messages on missing and unexpected names
};

LoadPlan plan_load(const std::vector<LoadTarget>& targets, const NamedArrays& given, LoadTypes types);

}  // namespace mx::detail
