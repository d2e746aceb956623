// The table that collects the samples of all families. Internal.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "operators/operator.h"

namespace mx::detail {

/// Functions that make samples, by the operator's name.
using SampleTable = std::map<std::string, std::function<std::vector<Sample>()>>;

void add_advanced_indexing_samples(SampleTable& table);
void add_attention_samples(SampleTable& table);
void add_cast_samples(SampleTable& table);
void add_ctc_samples(SampleTable& table);
void add_convolution_samples(SampleTable& table);
void add_distance_samples(SampleTable& table);
void add_elementwise_binary_samples(SampleTable& table);
void add_elementwise_unary_samples(SampleTable& table);
void add_fft_samples(SampleTable& table);
void add_fill_ops_samples(SampleTable& table);
void add_indexing_samples(SampleTable& table);
void add_interpolate_samples(SampleTable& table);
void add_linalg_samples(SampleTable& table);
void add_loss_samples(SampleTable& table);
void add_loss_elementwise_samples(SampleTable& table);
void add_matmul_samples(SampleTable& table);
void add_norm_samples(SampleTable& table);
void add_polygamma_samples(SampleTable& table);
void add_pooling_samples(SampleTable& table);
void add_random_samples(SampleTable& table);
void add_recurrent_samples(SampleTable& table);
void add_reduce_samples(SampleTable& table);
void add_rotary_samples(SampleTable& table);
void add_unfold_samples(SampleTable& table);
void add_scan_samples(SampleTable& table);
void add_select_samples(SampleTable& table);
void add_shape_ops_samples(SampleTable& table);
void add_softmax_samples(SampleTable& table);
void add_sorting_samples(SampleTable& table);
void add_sparse_samples(SampleTable& table);

/// Makes the attributes of an operator whose attribute type is defined in its source file.
Attrs attrs_of(const char* op, const AttrMap& values);

}  // namespace mx::detail
