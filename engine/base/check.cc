#include "engine/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace mx::detail {

void invariant_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "mx: broken invariant `%s` at %s:%d; please report this\n", condition, file, line);
  std::abort();
}

}  // namespace mx::detail
