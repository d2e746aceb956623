// LoadPlan: which entry of a dictionary belongs to which array of an object that is loaded, and everything
// that does not fit, found before anything is changed. Internal: modules and optimisers load by it.
#pragma once

#include <source_location>
#include <string>
#include <vector>

#include "ndarray/save.h"

namespace mx::detail {

/// What an object expects under one name.
struct LoadTarget {
  std::string name;
  NDArray array;  ///< has the shape and type that are expected
  /// Targets with the same place are one array under several names, of which one is enough. Null: this name
  /// only.
  const void* place = nullptr;
};

enum class LoadTypes {
  same,     ///< an entry has the target's type
  converts  ///< or one of the same or a lower category: an integer fits a floating-point target
};

struct LoadPlan {
  std::vector<NDArray> sources;         ///< one for each target; an empty handle if there is no entry
  std::vector<std::string> missing;     ///< names of targets without an entry
  std::vector<std::string> unexpected;  ///< names of entries without a target

  /// Throws InvalidArgument with a line for each problem, if there are any: shapes and types that do not fit,
  /// empty handles, names that come twice; if `strict`, missing and unexpected names as well. "[op] expected
  /// the arrays of <what>, got 2 problems:". The last line has the place of the call, if it is given.
  void raise(const std::string& op, const std::string& what, bool strict,
             const std::source_location* where = nullptr) const;

  std::vector<std::string> problems;  ///< in words; those of a lenient load
  std::vector<std::string> absences;  ///< in words; what is missing or unexpected
};

LoadPlan plan_load(const std::vector<LoadTarget>& targets, const NamedArrays& given, LoadTypes types);

}  // namespace mx::detail
