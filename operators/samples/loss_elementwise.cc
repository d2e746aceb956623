#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/loss_elementwise_gradient.h"
#include "operators/samples/table.h"

namespace mx::detail {
namespace {

using kernels::ElementwiseLoss;

NDArray sample_x() { return array({{1.5f, -2.f, 0.25f}, {3.f, -0.5f, 2.f}}); }

NDArray sample_target() { return array({{1.25f, 0.5f, -1.f}, {0.5f, -0.75f, 4.f}}); }

NDArray sample_probabilities() { return array({{0.25f, 0.875f, 0.5f}, {0.0625f, 0.75f, 0.375f}}); }

NDArray sample_shares() { return array({{0.5f, 0.125f, 0.375f}, {0.25f, 0.625f, 0.875f}}); }

NDArray sample_sides() { return array({{1.f, -1.f, 1.f}, {-1.f, -1.f, 1.f}}); }

/// Returns a sample for each reduction, with the given values of the other attributes.
std::vector<Sample> each_reduction(const char* op, const NDArray& x, const NDArray& target,
                                   AttrMap values = {}) {
  std::vector<Sample> result;
  for (const char* reduction : {"mean", "sum", "none"}) {
    values["reduction"] = std::string(reduction);
    result.push_back({{x, target}, attrs_of(op, values), std::string("reduction=") + reduction});
  }
  return result;
}

std::vector<Sample> samples_difference(const char* op) {
  std::vector<Sample> result = each_reduction(op, sample_x(), sample_target());
  result.push_back({{full({}, 1.5f), full({}, 0.25f)}, attrs_of(op, {}), "rank 0"});
  return result;
}
std::vector<Sample> samples_huber() {
  std::vector<Sample> result = each_reduction("huber_loss", sample_x(), sample_target(), {{"delta", 1.5}});
  result.push_back({{sample_x(), sample_target()}, attrs_of("huber_loss", {}), "delta=1"});
  return result;
}
std::vector<Sample> samples_smooth_l1() {
  std::vector<Sample> result = each_reduction("smooth_l1_loss", sample_x(), sample_target(), {{"beta", 1.5}});
  result.push_back({{sample_x(), sample_target()}, attrs_of("smooth_l1_loss", {{"beta", 0.0}}), "beta=0"});
  return result;
}
std::vector<Sample> samples_bce() {
  return each_reduction("bce_loss", sample_probabilities(), sample_shares());
}
std::vector<Sample> samples_logits() {
  const char* const op = "bce_with_logits";
  std::vector<Sample> result = each_reduction(op, sample_x(), sample_shares());
  result.push_back({{sample_x(), sample_shares(), array({0.5f, 2.f, 3.f})}, attrs_of(op, {}), "pos_weight"});
  result.push_back({{sample_x(), sample_shares(), full({}, 3.f)},
                    attrs_of(op, {{"reduction", std::string("none")}}),
                    "one pos_weight, reduction=none"});
  return result;
}
std::vector<Sample> samples_kl() {
  const char* const op = "kl_div";
  const NDArray x = log(sample_probabilities());
  std::vector<Sample> result = each_reduction(op, x, sample_shares());
  result.push_back(
      {{x, sample_shares()}, attrs_of(op, {{"reduction", std::string("batchmean")}}), "by batch"});
  result.push_back({{x, log(sample_shares())},
                    attrs_of(op, {{"reduction", std::string("none")}, {"log_target", true}}),
                    "log_target"});
  return result;
}
std::vector<Sample> samples_hinge(const char* op) {
  std::vector<Sample> result = each_reduction(op, sample_x(), sample_sides(), {{"margin", 1.75}});
  result.push_back({{sample_x(), sample_sides()}, attrs_of(op, {}), "margin=1"});
  return result;
}
// There is no derivative in the target, which has only two values.
std::vector<Sample> samples_hinge_embedding() {
  std::vector<Sample> result = samples_hinge("hinge_embedding_loss");
  for (Sample& sample : result) sample.inputs[1] = sample.inputs[1].to(i32);
  return result;
}

Attrs backward_attrs(const char* loss, double parameter, const char* reduction) {
  return attrs_of(
      "elementwise_loss_backward",
      {{"loss", std::string(loss)}, {"parameter", parameter}, {"reduction", std::string(reduction)}});
}

const char* const kLossNames[] = {"mse",    "l1",         "huber", "smooth_l1",      "bce", "bce_with_logits",
                                  "kl_div", "kl_div_log", "hinge", "hinge_embedding"};

/// Returns samples of every loss with each reduction.
std::vector<Sample> samples_elementwise_backward() {
  std::vector<Sample> result;
  for (int loss = 0; loss < static_cast<int>(std::size(kLossNames)); ++loss) {
    const auto op = static_cast<ElementwiseLoss>(loss);
    const bool probabilities = op == ElementwiseLoss::bce,
               shares = op >= ElementwiseLoss::bce && op <= ElementwiseLoss::kl_div;
    const NDArray x = probabilities ? sample_probabilities() : sample_x();
    const NDArray t = shares                                   ? sample_shares()
                      : op == ElementwiseLoss::hinge           ? sample_sides()
                      : op == ElementwiseLoss::hinge_embedding ? sample_sides().to(i32)
                                                               : sample_target();
    const char* const reduction = loss % 3 == 0 ? "mean" : loss % 3 == 1 ? "none" : "sum";
    const NDArray dloss = loss % 3 == 1 ? sample_shares() + 0.5 : full({}, 0.75f);
    result.push_back({{dloss, x, t},
                      backward_attrs(kLossNames[loss], 1.75, reduction),
                      std::string("loss=") + kLossNames[loss] + ", reduction=" + reduction});
  }
  result.push_back({{full({}, 0.75f), sample_x(), sample_shares(), array({0.5f, 2.f, 3.f})},
                    backward_attrs("bce_with_logits", 0, "mean"),
                    "pos_weight"});
  result.push_back(
      {{full({}, 0.75f), sample_x(), sample_shares()}, backward_attrs("kl_div", 0, "batchmean"), "by batch"});
  return result;
}

}  // namespace

void add_loss_elementwise_samples(SampleTable& table) {
  for (const char* op : {"mse_loss", "l1_loss"}) table[op] = [op] { return samples_difference(op); };
  table["huber_loss"] = samples_huber;
  table["smooth_l1_loss"] = samples_smooth_l1;
  table["bce_loss"] = samples_bce;
  table["bce_with_logits"] = samples_logits;
  table["kl_div"] = samples_kl;
  table["hinge_loss"] = [] { return samples_hinge("hinge_loss"); };
  table["hinge_embedding_loss"] = samples_hinge_embedding;
  table["elementwise_loss_backward"] = samples_elementwise_backward;
}

}  // namespace mx::detail
