#include "ndarray/recover.h"

#include "engine/base/check.h"
#include "engine/engine.h"
#include "ndarray/detail/place.h"

namespace mx::detail {

void undo_skipped_updates(const NamedArrays& arrays, std::source_location where) {
  Engine& engine = current_engine();
  for (const auto& [name, array] : arrays)
    if (array.defined()) engine.recover(array.var(), where);
}

void check_recovered(const std::string& caller, const NamedArrays& arrays, const std::string& advice,
                     std::source_location where) {
  constexpr size_t kMostNames = 10;
  std::string names, error;
  size_t lost = 0;
  for (const auto& [name, array] : arrays) {
    if (!array.defined()) continue;
    try {
      array.wait();
    } catch (const Error& e) {
      if (lost == 0) error = e.what();
      if (lost < kMostNames) names += concat(lost == 0 ? "'" : ", '", name, "'");
      ++lost;
    }
  }
  if (lost > kMostNames) names += concat(" and ", lost - kMostNames, " more");
  MX_CHECK(lost == 0, InvalidState, "[", caller,
           "] expected arrays that hold the values from before the error, got lost values in ", names, "; ",
           advice, called_at(where), "; the error was: ", error);
}

}  // namespace mx::detail
