// The attributes with which a fused kernel is launched. Internal.
#pragma once

#include <memory>

#include "operators/fused_text.h"

namespace mx::detail {

struct FusedAttrs {
  std::shared_ptr<const FusedProgram> program;
  template <class V>
  static void fields(V&&) {}
};

}  // namespace mx::detail
