#include "operators/autocast_rules.h"

namespace mx::detail {

// The choice of torch.autocast, extended to the operators that PyTorch does not have. Products accumulate in
// f32 and round once, so they need the lower type only at their inputs. Gradient operators ("_backward") keep
// their types: backward passes run without autocast, and a call by hand gets the types that it asks for.
std::span<const AutocastRules> autocast_rules() {
  static constexpr AutocastRules kRules[] = {
      // Products.
      {AutocastRule::lower,
       "addmm attention attention_dropout attention_packed convolution convolution_transpose dot gru "
       "gru_inference linear "
       "lstm "
       "lstm_inference matmul rnn rnn_inference"},
      // Sums over many elements, functions that leave the range of f16 or amplify rounding, losses,
      // normalisations, linear algebra.
      {AutocastRule::single,
       "acos acosh asin asinh atanh batch_norm batch_norm_inference bce_loss bce_with_logits "
       "binary_cross_entropy cosh cross_entropy ctc_loss cumprod cumsum erfc erfinv euclidean exp "
       "exp2 expm1 fft group_norm hinge_embedding_loss hinge_loss huber_loss hypot irfft kl_div "
       "l1_loss layer_norm lgamma linalg_cholesky linalg_cofactor linalg_det linalg_eig linalg_eigh "
       "linalg_eigvals linalg_eigvalsh linalg_inv linalg_lstsq linalg_lu_factor linalg_matrix_exp "
       "linalg_pinv "
       "linalg_qr linalg_slogdet linalg_solve linalg_solve_triangular linalg_svd linalg_svdvals "
       "linear_recurrence log log10 log1p log2 log_softmax logaddexp logcumsumexp logit logsumexp "
       "mean minkowski mse_loss nll_loss norm polygamma pow prod reciprocal rfft rms_norm rsqrt segment_mean "
       "segment_softmax segment_sum sinh smooth_l1_loss softmax softplus square stddev sum tan var xlogy"},
      // Operators of several arrays.
      {AutocastRule::widest,
       "add atan2 clamp clamp_scalar concat copysign csr_matmul csr_sample div equal floor_div fmax fmin "
       "fmod "
       "greater greater_equal index_update less less_equal masked_scatter maximum minimum mod mul "
       "not_equal put_nd scatter searchsorted sub where where_scalar"},
      // One array, integers, random numbers, state, and gradients.
      {AutocastRule::keep,
       "abs adaptive_avg_pool adaptive_avg_pool_backward adaptive_max_pool all any argmax argmin "
       "argpartition argselect argsort argwhere atan attention_backward "
       "attention_dropout_backward attention_packed_backward avg_pool avg_pool_backward "
       "batch_norm_backward bernoulli bernoulli_of binomial bitwise_and bitwise_not bitwise_or "
       "bitwise_xor cast categorical cbrt ceil convolution_weights cos count_nonzero "
       "cross_entropy_backward ctc_loss_backward cummax cummin distance_backward dropout "
       "elementwise_loss_backward "
       "embedding embedding_gradient erf exponential floor fold gamma gather gather_nd gcd gelu "
       "gelu_backward gelu_tanh gelu_tanh_backward group_norm_backward gru_backward isfinite isinf "
       "isnan layer_norm_backward lcm left_shift log_softmax_backward logical_and logical_not "
       "logical_or logical_xor lstm_backward mask_count masked_select matmul_i32 max max_pool "
       "max_pool_backward min neg nextafter nll_loss_backward normal one_hot pad permutation poisson "
       "randint random_key relu relu_backward repeat resample resample_backward right_shift "
       "rms_norm_backward rnn_backward roll "
       "rotary_embedding round segment_expand segment_max segment_min segment_offsets sigmoid "
       "sigmoid_backward sign signbit silu silu_backward sin softmax_backward sort split sqrt "
       "sum_rows take tanh tanh_backward tile topk tril triu trunc unfold uniform unique "
       "update_running_statistics"},
  };
  return kRules;
}

}  // namespace mx::detail
