#include "executor/autograd/post_accumulate.h"

#include <utility>

#include "engine/base/check.h"
#include "executor/autograd/grad_cell.h"
#include "executor/autograd/node.h"
#include "ndarray/detail/place.h"

namespace mx {

HookHandle add_post_accumulate_hook(const NDArray& leaf, PostAccumulateHook hook,
                                    std::source_location where) {
  MX_CHECK(hook, InvalidArgument, "[add_post_accumulate_hook] expected a function, got an empty one",
           detail::called_at(where));
  const detail::Edge edge = detail::edge_of(leaf.impl());
  MX_CHECK(edge && edge.node->leaf(), InvalidState,
           "[add_post_accumulate_hook] expected an array with requires_grad_(), got ",
           edge ? "the result of an operation" : "one without", ", of shape ", leaf.shape(),
           detail::called_at(where));
  // The memory without the node: the node owns the hook, so the hook must not own the node.
  auto call = [memory = detail::without_edge(leaf.impl()), hook = std::move(hook), where](
                  const detail::Ref<detail::Node>& node, const std::shared_ptr<detail::GradCell>& cell) {
    const NDArray array(detail::without_edge(*memory));
    detail::set_cell(array.impl(), {node, 0}, cell);
    try {
      hook(array);
    } catch (...) {
      std::rethrow_exception(rewrite_current_exception([&](const std::string& text) {
        return detail::concat(text, " (in a hook of the gradient of an array of shape ", array.shape(),
                              ", added at ", where.file_name(), ':', where.line(), ')');
      }));
    }
  };
  return edge.node->attach({.output = 0, .post = std::move(call)});
}

}  // namespace mx
