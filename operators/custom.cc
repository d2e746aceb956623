#include "operators/custom.h"

#include "engine/base/check.h"

namespace mx {

NDArray detail::only_output(const Operator& op, std::vector<NDArray> outputs) {
  MX_CHECK(outputs.size() == 1, InvalidArgument, "[", op.name(),
           "] expected an operator with one output, got one with ", outputs.size(),
           "; call it with custom_all<Op>()");
  return std::move(outputs[0]);
}

}  // namespace mx
