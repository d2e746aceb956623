// Gradients of the normalisations. With xh = (x - mean) rstd, g = dy weight, and M() the mean over the
// elements of a group,
//   dx = rstd (g - M(g) - xh M(g xh)),  dweight = sum(dy xh),  dbias = sum(dy);
// without M(g) if there is no mean (rms_norm). The backward operators compute these. Their own gradients are
// composed of operators; mean and rstd are inputs there, whose gradients reach x through the outputs of the
// forward operator.
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/norm_form.h"
#include "operators/reduce.h"

namespace mx::detail {
namespace {

const NDArray& add_to(NDArray& total, const NDArray& part) {
  total = total.defined() ? total + part : part;
  return total;
}

/// Sets the gradients of a forward operator. `name` is that of its backward operator.
void forward_gradient(GradientContext& g, const NormForm& form, const char* name, const Attrs& attrs,
                      bool parameters) {
  const NDArray& x = g.input(0);
  const size_t last = form.centred ? 2 : 1;  // rstd
  const NDArray& rstd = g.output(last);
  const DType type = x.dtype();
  NDArray dx;
  if (g.head(0).defined()) {
    std::vector<NDArray> inputs = {g.head(0), x};
    if (form.centred) inputs.push_back(g.output(1));
    inputs.push_back(rstd);
    // Only the gradient of x reads the weight, whose value is kept for that one alone.
    if (g.inputs() > 1 && g.wanted(0)) inputs.push_back(g.input(1));
    const std::vector<NDArray> results = call(*find_operator(name), attrs, inputs);
    dx = results[0];
    if (parameters)
      for (size_t i = 1; i < g.inputs(); ++i)
        if (g.wanted(i)) g.set(i, results[i]);
  }
  if (!g.wanted(0)) return;
  const double share = 1 / form.elements();
  const auto add = [&](const NDArray& part) { add_to(dx, part.reshape(x.shape())); };
  if (form.centred && g.head(1).defined()) add((g.head(1).reshape(form.stats) * share).broadcast_to(form.x));
  if (g.head(last).defined()) {
    const NDArray r = rstd.reshape(form.stats);
    NDArray centred = x.reshape(form.x);
    if (form.centred) centred = centred - g.output(1).reshape(form.stats);
    add(centred * (g.head(last).reshape(form.stats) * (r * r * r) * -share));
  }
  if (dx.defined()) g.set(0, dx.dtype() == type ? dx : dx.to(type));
}

/// Sets the gradients of a backward operator.
void backward_gradient(GradientContext& g, const NormForm& form, bool parameters) {
  const size_t rstd_at = form.centred ? 3 : 2, weight_at = rstd_at + 1;
  const bool weighted = g.inputs() > weight_at;
  const auto in = [&](size_t i, const Shape& shape) { return g.input(i).reshape(shape); };
  const NDArray dy = in(0, form.x), x = in(1, form.x), rstd = in(rstd_at, form.stats);
  const NDArray weight = weighted ? in(weight_at, form.params) : NDArray();
  const auto by_weight = [&](const NDArray& a) { return weighted ? a * weight : a; };
  const auto group_sum = [&](const NDArray& a) { return sum_to(a, form.stats); };
  const auto group_mean = [&](const NDArray& a) { return group_sum(a) * (1 / form.elements()); };
  const NDArray centred = form.centred ? x - in(2, form.stats) : x, xh = centred * rstd;
  NDArray d_dy, d_xh, d_rstd, d_weight;
  if (g.head(0).defined()) {
    const NDArray h = g.head(0).reshape(form.x), gw = by_weight(dy);
    const NDArray mean_hx = group_mean(h * xh), mean_gx = group_mean(gw * xh);
    NDArray of_g = h - xh * mean_hx, slope = gw - xh * mean_gx;
    if (form.centred) {
      of_g = of_g - group_mean(h);
      slope = slope - group_mean(gw);
    }
    of_g = of_g * rstd;
    d_dy = by_weight(of_g);
    if (weighted && g.wanted(weight_at)) d_weight = sum_to(of_g * dy, form.params);
    d_xh = -(rstd * (h * mean_gx + gw * mean_hx));
    d_rstd = group_sum(h * slope);
  }
  if (parameters && g.head(1).defined()) {
    const NDArray h = g.head(1).reshape(form.params);
    add_to(d_dy, h * xh);
    add_to(d_xh, h * dy);
  }
  if (parameters && form.centred && g.head(2).defined())
    add_to(d_dy, g.head(2).reshape(form.params).broadcast_to(form.x));
  const auto set = [&](size_t i, const NDArray& gradient) {
    if (gradient.defined() && g.wanted(i)) g.set(i, gradient.reshape(g.input_shape(i)));
  };
  set(0, d_dy);
  if (d_xh.defined()) {
    const NDArray dx = d_xh * rstd;
    set(1, dx);
    if (form.centred && g.wanted(2)) set(2, -group_sum(dx));
    if (g.wanted(rstd_at)) set(rstd_at, add_to(d_rstd, group_sum(d_xh * centred)));
  }
  if (weighted) set(weight_at, d_weight);
}

bool wants_parameters(const GradientContext& g) {
  return (g.inputs() > 1 && g.wanted(1)) || (g.inputs() > 2 && g.wanted(2));
}

}  // namespace

void gradient_batch_norm(GradientContext& g) {
  const bool parameters = wants_parameters(g);
  forward_gradient(g, batch_norm_form(g.input_shape(0), "batch_norm"), "batch_norm_backward",
                   BatchNormBackwardAttrs{parameters}, parameters);
}
void gradient_batch_norm_backward(GradientContext& g) {
  backward_gradient(g, batch_norm_form(g.input_shape(1), "batch_norm_backward"),
                    g.attr<BatchNormBackwardAttrs>().parameters);
}

void gradient_group_norm(GradientContext& g) {
  const bool parameters = wants_parameters(g);
  const int64_t groups = g.attr<GroupNormAttrs>().groups;
  forward_gradient(g, group_norm_form(g.input_shape(0), groups, "group_norm"), "group_norm_backward",
                   GroupNormBackwardAttrs{groups, parameters}, parameters);
}
void gradient_group_norm_backward(GradientContext& g) {
  const auto& attrs = g.attr<GroupNormBackwardAttrs>();
  backward_gradient(g, group_norm_form(g.input_shape(1), attrs.groups, "group_norm_backward"),
                    attrs.parameters);
}

void gradient_layer_norm(GradientContext& g) {
  const bool parameters = wants_parameters(g);
  const int64_t dims = g.attr<LayerNormAttrs>().dims;
  forward_gradient(g, layer_norm_form(g.input_shape(0), dims, true, "layer_norm"), "layer_norm_backward",
                   LayerNormBackwardAttrs{dims, parameters}, parameters);
}
void gradient_layer_norm_backward(GradientContext& g) {
  const auto& attrs = g.attr<LayerNormBackwardAttrs>();
  backward_gradient(g, layer_norm_form(g.input_shape(1), attrs.dims, true, "layer_norm_backward"),
                    attrs.parameters);
}

void gradient_rms_norm(GradientContext& g) {
  const bool parameters = wants_parameters(g);
  const int64_t dims = g.attr<LayerNormAttrs>().dims;
  forward_gradient(g, layer_norm_form(g.input_shape(0), dims, false, "rms_norm"), "rms_norm_backward",
                   LayerNormBackwardAttrs{dims, parameters}, parameters);
}
void gradient_rms_norm_backward(GradientContext& g) {
  const auto& attrs = g.attr<LayerNormBackwardAttrs>();
  backward_gradient(g, layer_norm_form(g.input_shape(1), attrs.dims, false, "rms_norm_backward"),
                    attrs.parameters);
}

// Reads only what the gradients that are wanted need (kInferenceReads in norm.cc).
void gradient_batch_norm_inference(GradientContext& g) {
  const NormForm form = batch_norm_form(g.input_shape(0), "batch_norm_inference");
  const bool weighted = g.inputs() > 3;
  const bool of_variance = g.wanted(2), of_weight = weighted && g.wanted(3);
  const NDArray head = g.head().reshape(form.x);
  NDArray rstd, scale;
  if (g.wanted(0) || g.wanted(1) || of_variance || of_weight)
    rstd = rsqrt(g.input(2).reshape(form.stats) + g.attr<BatchNormAttrs>().eps);
  if (g.wanted(0) || g.wanted(1) || of_variance)
    scale = weighted ? rstd * g.input(3).reshape(form.params) : rstd;
  // In the type of the statistics: a sum of f16 would leave its range.
  const auto by_channel = [&](const NDArray& a) {
    return sum_to(a.to(g.input_dtype(2)), form.stats).reshape(form.stats_plain);
  };
  if (g.wanted(0)) g.set(0, (head * scale).reshape(g.input_shape(0)));
  if (g.wanted(1)) g.set(1, -by_channel(head) * scale.reshape(form.stats_plain));
  if (of_variance || of_weight) {
    const NDArray centred = g.input(0).reshape(form.x) - g.input(1).reshape(form.stats);
    const NDArray product = by_channel(head * centred), r = rstd.reshape(form.stats_plain);
    if (of_variance) g.set(2, product * scale.reshape(form.stats_plain) * square(r) * -0.5);
    if (of_weight) g.set(3, product * r);
  }
  if (g.inputs() > 4 && g.wanted(4)) g.set(4, by_channel(head));
}

}  // namespace mx::detail
