#include "operators/samples/samples.h"

#include "engine/base/check.h"
#include "operators/samples/table.h"

namespace mx {
namespace {

const detail::SampleTable& sample_table() {
  static const detail::SampleTable table = [] {
    detail::SampleTable all;
    detail::add_advanced_indexing_samples(all);
    detail::add_attention_samples(all);
    detail::add_cast_samples(all);
    detail::add_ctc_samples(all);
    detail::add_convolution_samples(all);
    detail::add_distance_samples(all);
    detail::add_elementwise_binary_samples(all);
    detail::add_elementwise_unary_samples(all);
    detail::add_fft_samples(all);
    detail::add_fill_ops_samples(all);
    detail::add_indexing_samples(all);
    detail::add_interpolate_samples(all);
    detail::add_linalg_samples(all);
    detail::add_loss_samples(all);
    detail::add_loss_elementwise_samples(all);
    detail::add_matmul_samples(all);
    detail::add_norm_samples(all);
    detail::add_polygamma_samples(all);
    detail::add_pooling_samples(all);
    detail::add_random_samples(all);
    detail::add_recurrent_samples(all);
    detail::add_reduce_samples(all);
    detail::add_rotary_samples(all);
    detail::add_unfold_samples(all);
    detail::add_scan_samples(all);
    detail::add_select_samples(all);
    detail::add_shape_ops_samples(all);
    detail::add_softmax_samples(all);
    detail::add_sorting_samples(all);
    detail::add_sparse_samples(all);
    return all;
  }();
  return table;
}

}  // namespace

std::vector<Sample> samples_of(const Operator& op) {
  if (op.samples != nullptr) return op.samples();
  const auto found = sample_table().find(op.name());
  return found == sample_table().end() ? std::vector<Sample>{} : found->second();
}

bool has_samples(const Operator& op) { return op.samples != nullptr || sample_table().contains(op.name()); }

Attrs detail::attrs_of(const char* op, const AttrMap& values) {
  const Operator* const found = find_operator(op);
  MX_CHECK(found != nullptr, InvalidArgument, "[samples] expected the name of an operator, got ", op);
  return Attrs::from_map(found->attrs, values, op);
}

}  // namespace mx
