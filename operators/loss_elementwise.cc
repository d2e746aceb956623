// The losses that are made of other operators.
#include "engine/base/check.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/loss.h"
#include "operators/reduce.h"
#include "operators/select.h"

namespace mx {
namespace {

void check_same_shape(const Arg& x, const NDArray& target, const char* op) {
  MX_CHECK(x.array.shape() == target.shape(), InvalidArgument, "[", op,
           "] expected a target of the input's shape ", x.array.shape(), ", got ", target.shape(),
           " (called at ", x.where.file_name(), ':', x.where.line(), ')');
}

void check_reduction(const std::string& reduction, const Arg& x, const char* op) {
  MX_CHECK(reduction == "mean" || reduction == "sum" || reduction == "none", InvalidArgument, "[", op,
           "] expected \"none\", \"mean\" or \"sum\" for the reduction, got \"", reduction, "\" (called at ",
           x.where.file_name(), ':', x.where.line(), ')');
}

void check(const Arg& x, const NDArray& target, const std::string& reduction, const char* op) {
  check_same_shape(x, target, op);
  check_reduction(reduction, x, op);
}

/// The steps of a loss are called where the loss was: at(a) + b instead of a + b.
struct At {
  std::source_location where;
  explicit At(const Arg& x) : where(x.where) {}
  Arg operator()(const NDArray& a) const { return {a, where}; }
  Operand operator()(int number) const { return {number, where}; }
  Operand operator()(int64_t number) const { return {number, where}; }
  Operand operator()(double number) const { return {number, where}; }
};

NDArray finish(const NDArray& losses, const std::string& reduction, std::source_location where) {
  if (reduction == "none") return losses;
  return reduction == "mean" ? mean({losses, where}) : sum({losses, where});
}

NDArray difference(const Arg& x, const NDArray& target) { return sub({x.array, x.where}, target); }

/// z^2 / 2 up to delta, delta (z - delta / 2) beyond, without the square of what is beyond.
NDArray huber(const NDArray& distance, double delta, const At& at) {
  const NDArray inner = minimum(at(distance), at(delta));
  return at(at(square(at(inner))) * at(0.5)) + at(at(distance) - inner) * at(delta);
}

}  // namespace

NDArray bce_loss(const Arg& x, const NDArray& target, const std::string& reduction) {
  check(x, target, reduction, "bce_loss");
  return finish(binary_cross_entropy({x.array, x.where}, target), reduction, x.where);
}

// (1 - t) x + (1 + (pos_weight - 1) t) log(1 + exp(-x)).
NDArray bce_with_logits(const Arg& x, const NDArray& target, const std::string& reduction,
                        const NDArray& pos_weight) {
  check(x, target, reduction, "bce_with_logits");
  const At at(x);
  NDArray hit = softplus(at(-x));
  if (pos_weight.defined()) {
    const Shape& shape = x.array.shape();
    MX_CHECK(broadcast_shapes(pos_weight.shape(), shape, "bce_with_logits") == shape, InvalidArgument,
             "[bce_with_logits] expected a pos_weight that broadcasts to ", shape, ", got ",
             pos_weight.shape());
    hit = at(hit) * (at(at(at(pos_weight) - at(1)) * target) + at(1));
  }
  return finish(at(at(at(1) - target) * x.array) + hit, reduction, x.where);
}

NDArray mse_loss(const Arg& x, const NDArray& target, const std::string& reduction) {
  check(x, target, reduction, "mse_loss");
  return finish(square({difference(x, target), x.where}), reduction, x.where);
}

NDArray l1_loss(const Arg& x, const NDArray& target, const std::string& reduction) {
  check(x, target, reduction, "l1_loss");
  return finish(abs({difference(x, target), x.where}), reduction, x.where);
}

NDArray huber_loss(const Arg& x, const NDArray& target, double delta, const std::string& reduction) {
  check(x, target, reduction, "huber_loss");
  MX_CHECK(delta > 0, InvalidArgument, "[huber_loss] expected a delta above 0, got ", delta);
  const At at(x);
  return finish(huber(abs(at(difference(x, target))), delta, at), reduction, x.where);
}

NDArray smooth_l1_loss(const Arg& x, const NDArray& target, double beta, const std::string& reduction) {
  check(x, target, reduction, "smooth_l1_loss");
  MX_CHECK(beta >= 0, InvalidArgument, "[smooth_l1_loss] expected a beta of at least 0, got ", beta);
  const At at(x);
  const NDArray distance = abs(at(difference(x, target)));
  if (beta == 0) return finish(distance, reduction, x.where);
  const NDArray inner = minimum(at(distance), at(beta));
  const NDArray near = at(square(at(inner))) * at(0.5 / beta);
  return finish(at(near) + (at(distance) - inner), reduction, x.where);
}

NDArray kl_div(const Arg& x, const NDArray& target, const std::string& reduction, bool log_target) {
  check_same_shape(x, target, "kl_div");
  const bool by_batch = reduction == "batchmean";
  if (!by_batch) check_reduction(reduction, x, "kl_div");
  MX_CHECK(!by_batch || x.array.rank() > 0, InvalidArgument,
           "[kl_div] expected a first dimension for the reduction \"batchmean\", got rank 0");
  // The logarithm of 1 for 0: it and its derivative are finite.
  const At at(x);
  const NDArray weight = log_target ? exp(at(target)) : target;
  const NDArray log_weight = log_target ? target : log(at(where(at(at(target) == at(0)), at(1), at(target))));
  const NDArray losses = at(weight) * (at(log_weight) - x.array);
  if (!by_batch) return finish(losses, reduction, x.where);
  return at(sum(at(losses))) / at(x.array.size(0));
}

NDArray hinge_loss(const Arg& x, const NDArray& target, double margin, const std::string& reduction) {
  check(x, target, reduction, "hinge_loss");
  const At at(x);
  return finish(relu(at(at(margin) - mul(x, target))), reduction, x.where);
}

NDArray hinge_embedding_loss(const Arg& x, const NDArray& target, double margin,
                             const std::string& reduction) {
  check(x, target, reduction, "hinge_embedding_loss");
  const At at(x);
  const NDArray like = where(at(at(target) == at(1)), at(x.array), at(0));
  const NDArray unlike = where(at(at(target) == at(-1)), at(relu(at(at(margin) - x.array))), at(0));
  return finish(at(like) + unlike, reduction, x.where);
}

}  // namespace mx
