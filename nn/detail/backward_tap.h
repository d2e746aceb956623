// BackwardTap: lets the hooks of a module see the gradients of one of its calls. Internal.
//
// The arrays that enter the call and those that leave it pass through a function that changes nothing. In the
// backward pass, this function receives their gradients and calls the hooks.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "ndarray/ndarray.h"
#include "nn/detail/module_state.h"

namespace mx::nn::detail {

class BackwardTap {
 public:
  BackwardTap(const Module& module, std::shared_ptr<const ModuleState::Hooks> hooks);
  ~BackwardTap();

  /// Return the arrays that take the place of the given ones.
  std::vector<NDArray> inputs(const std::vector<NDArray>& arrays);
  std::vector<NDArray> outputs(const std::vector<NDArray>& arrays);

  struct Shared;

 private:
  const std::shared_ptr<Shared> shared_;  // with the functions in the graph
};

}  // namespace mx::nn::detail
