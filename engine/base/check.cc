#include "engine/base/check.h"

#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace mx::detail {

void write_text(std::ostream& out, const void* text) { out << static_cast<const char*>(text); }

std::string concat_parts(std::initializer_list<MessagePart> parts) {
  std::ostringstream out;
  for (const MessagePart& part : parts) part.write(out, part.value);
  return out.str();
}

void invariant_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "mx: broken invariant `%s` at %s:%d; please report this\n", condition, file, line);
  std::abort();
}

}  // namespace mx::detail
