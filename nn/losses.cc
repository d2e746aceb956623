// The losses that operators/loss.h does not have.
#include "nn/losses.h"

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "nn/detail/loss_parts.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/reduce.h"
#include "operators/select.h"

namespace mx::nn {
using detail::check_loss_reduction;
using detail::check_loss_shapes;
using detail::reduce_losses;

NDArray pairwise_distance(const Arg& a, const NDArray& b, double p, double eps) {
  return norm(sub({a.array, a.where}, b) + eps, p, -1);
}

NDArray cosine_similarity(const Arg& a, const NDArray& b, IntArg axis, double eps) {
  const NDArray product = sum(mul({a.array, a.where}, b), axis);
  return product / (maximum(norm(a, 2, axis), eps) * maximum(norm(b, 2, axis), eps));
}

NDArray triplet_margin_loss(const Arg& anchor, const NDArray& positive, const NDArray& negative,
                            const TripletOptions& options) try {
  check_loss_shapes("triplet_margin_loss", anchor, positive, "anchor and positive");
  check_loss_shapes("triplet_margin_loss", anchor, negative, "anchor and negative");
  check_loss_reduction("triplet_margin_loss", options.reduction);
  const auto distance = [&](const NDArray& a, const NDArray& b) {
    return pairwise_distance({a, anchor.where}, b, options.p, options.eps);
  };
  NDArray apart = distance(anchor.array, negative);
  if (options.swap) apart = minimum(apart, distance(positive, negative));
  return reduce_losses(relu(distance(anchor.array, positive) - apart + options.margin), options.reduction);
} catch (const Error&) {
  mx::detail::rethrow_at(anchor.where);
}

NDArray cosine_embedding_loss(const Arg& a, const NDArray& b, const NDArray& target, double margin,
                              const std::string& reduction) try {
  constexpr double kTiny = 1e-12;
  check_loss_shapes("cosine_embedding_loss", a, b, "two inputs");
  check_loss_reduction("cosine_embedding_loss", reduction);
  const int rank = a.array.rank();
  const bool fits = (rank == 1 && target.rank() == 0) ||
                    (rank == 2 && target.rank() == 1 && target.shape()[0] == a.array.shape()[0]);
  MX_CHECK(fits, InvalidArgument,
           "[cosine_embedding_loss] expected inputs (n, features) with a target (n,), or (features,) with a "
           "target (), got ",
           a.array.shape(), " and ", target.shape());
  const NDArray squares = (sum(square(a), -1) + kTiny) * (sum(square(b), -1) + kTiny);
  const NDArray cosine = sum(mul({a.array, a.where}, b), -1) / sqrt(squares);
  return reduce_losses(where(target == 1, 1 - cosine, 0) + where(target == -1, relu(cosine - margin), 0),
                       reduction);
} catch (const Error&) {
  mx::detail::rethrow_at(a.where);
}

NDArray margin_ranking_loss(const Arg& a, const NDArray& b, const NDArray& target, double margin,
                            const std::string& reduction) try {
  check_loss_shapes("margin_ranking_loss", a, b, "two inputs");
  check_loss_shapes("margin_ranking_loss", a, target, "inputs and target");
  check_loss_reduction("margin_ranking_loss", reduction);
  return reduce_losses(relu(margin - target * sub({a.array, a.where}, b)), reduction);
} catch (const Error&) {
  mx::detail::rethrow_at(a.where);
}

}  // namespace mx::nn
