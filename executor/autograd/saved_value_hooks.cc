#include "executor/autograd/saved_value_hooks.h"

#include <utility>

#include "engine/base/check.h"
#include "executor/autograd/node.h"
#include "ndarray/detail/place.h"
#include "ndarray/grad_mode.h"
#include "operators/autocast.h"

namespace mx {
namespace detail {
namespace {

// Calls a function of the program as a value is saved or read.
template <class F>
auto call_saved_value_function(const char* name, const std::function<std::string()>& what, const F& f) {
  const NoGrad no_grad;
  const AutocastPause no_autocast;
  const SavedValueScope no_hooks(nullptr);
  try {
    return f();
  } catch (...) {
    std::rethrow_exception(rewrite_current_exception([&](const std::string& text) {
      return concat(text, " (in ", name, "() of SavedValueHooks, for ", what(), ')');
    }));
  }
}

}  // namespace

PackedValue::PackedValue(const ArrayImpl& value, const std::function<std::string()>& what)
    : functions_(*saved_value_functions) {
  const NDArray array(without_edge(value));
  kept_ = call_saved_value_function(
      "pack", what, [&] { return std::make_shared<const std::any>(functions_->pack(array)); });
}

NDArray PackedValue::unpack(const ArrayImpl& like, const std::function<std::string()>& what) const {
  return call_saved_value_function("unpack", what, [&] {
    const NDArray value = functions_->unpack(*kept_);
    MX_CHECK(value.defined(), InvalidArgument, "[SavedValueHooks] expected an array of ", like.dtype, ' ',
             like.shape, ", got an empty handle");
    MX_CHECK(value.shape() == like.shape && value.dtype() == like.dtype && value.context() == like.context(),
             InvalidArgument, "[SavedValueHooks] expected an array of ", like.dtype, ' ', like.shape, " on ",
             like.context(), ", as the value that was packed, got ", value.dtype(), ' ', value.shape(),
             " on ", value.context());
    return NDArray(without_edge(value.impl()));
  });
}

bool packs(const ArrayImpl& value) {
  if (saved_value_functions == nullptr) [[likely]]
    return false;
  if ((*saved_value_functions)->options.leaves) return true;
  const Edge edge = edge_of(value);
  return !edge || !edge.node->leaf();
}

}  // namespace detail

SavedValueHooks::SavedValueHooks(PackValue pack, UnpackValue unpack, const SavedValueOptions& options,
                                 std::source_location where)
    : functions_(std::make_shared<const detail::SavedValueFunctions>(
          detail::SavedValueFunctions{std::move(pack), std::move(unpack), options})),
      scope_(&functions_) {
  MX_CHECK(functions_->pack && functions_->unpack, InvalidArgument,
           "[SavedValueHooks] expected two functions, got an empty one", detail::called_at(where));
}

}  // namespace mx
