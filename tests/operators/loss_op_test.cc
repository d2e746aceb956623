#include "operators/loss.h"

#include <algorithm>
#include <cmath>

#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/reduce.h"
#include "operators/shape_ops.h"
#include "operators/softmax.h"
#include "tests/operators/values.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;
using test::kInfinity;
using test::kNan;
using test::Values;

struct Options {
  int64_t axis, ignore;
  double smoothing;
  std::string reduction;
  bool logits;
};

/// The definition of the loss, and its derivative given a gradient of the loss.
struct Oracle {
  Values loss, dx;
};

Oracle class_loss(const NDArray& scores, const NDArray& target, const NDArray& weight, const Options& o,
                  const Values& head) {
  const Shape& shape = scores.shape();
  const int axis = shape.rank() == 1 ? 0 : normalize_axis(o.axis, shape.rank(), "test");
  const int64_t classes = shape[axis], stride = contiguous_strides(shape)[axis];
  const bool labels = is_integral(target.dtype());
  const Values x = test::values(scores), t = test::values(target);
  const Values w = weight.defined() ? test::values(weight) : Values(static_cast<size_t>(classes), 1.0);
  const double n = static_cast<double>(classes);
  Oracle result;
  result.dx.assign(x.size(), 0);
  double divisor = 0, total = 0;
  struct Row {
    size_t first;
    Values q;  // the factors of the log-probabilities
  };
  std::vector<Row> rows;
  for (size_t i = 0; i < x.size(); ++i) {
    if (static_cast<int64_t>(i) / stride % classes != 0) continue;
    Row row{i, Values(static_cast<size_t>(classes), 0.0)};
    const double label = labels ? t[rows.size()] : 0;
    const bool counts = !labels || label != static_cast<double>(o.ignore);
    double loss = 0, sum = 0;
    for (size_t c = 0; c < row.q.size(); ++c) sum += std::exp(x[i + c * static_cast<size_t>(stride)]);
    for (size_t c = 0; c < row.q.size() && counts; ++c) {
      const size_t at = i + c * static_cast<size_t>(stride);
      const double own = labels ? (label == static_cast<double>(c) ? 1 : 0) : t[at];
      row.q[c] = w[c] * ((1 - o.smoothing) * own + o.smoothing / n);
      loss -= row.q[c] * (x[at] - (o.logits ? std::log(sum) : 0));
      if (labels) divisor += own * w[c];
    }
    if (!labels) divisor += 1;
    result.loss.push_back(loss);
    total += loss;
    rows.push_back(row);
  }
  for (size_t r = 0; r < rows.size() && !head.empty(); ++r) {
    const double scale = o.reduction == "none" ? head[r] : o.reduction == "sum" ? head[0] : head[0] / divisor;
    double mass = 0, sum = 0;
    for (double q : rows[r].q) mass += q;
    for (size_t c = 0; c < rows[r].q.size(); ++c)
      sum += std::exp(x[rows[r].first + c * static_cast<size_t>(stride)]);
    for (size_t c = 0; c < rows[r].q.size(); ++c) {
      const size_t at = rows[r].first + c * static_cast<size_t>(stride);
      result.dx[at] = scale * ((o.logits ? mass * std::exp(x[at]) / sum : 0) - rows[r].q[c]);
    }
  }
  if (o.reduction == "sum") result.loss = {total};
  if (o.reduction == "mean") result.loss = {total / divisor};
  return result;
}

Options options_of(const Attrs& attrs) {
  if (attrs.type() == &kAttrType<CrossEntropyAttrs>) {
    const auto& a = attrs.get<CrossEntropyAttrs>();
    return {a.axis, a.ignore_index, a.label_smoothing, a.reduction, true};
  }
  const auto& a = attrs.get<NllAttrs>();
  return {a.axis, a.ignore_index, 0, a.reduction, false};
}

TEST(LossOp, ClassLossesAgreeWithTheirDefinitionForAllSamplesAndTypes) {
  for (const char* name : {"cross_entropy", "nll_loss"})
    test::each_sample(name, [](const Operator& op, const Sample& s) {
      const NDArray weight = s.inputs.size() > 2 ? s.inputs[2] : NDArray();
      test::expect_values(class_loss(s.inputs[0], s.inputs[1], weight, options_of(s.attrs), {}).loss,
                          call(op, s.attrs, s.inputs)[0], s.label, 4);
    });
  for (const char* name : {"cross_entropy_backward", "nll_loss_backward"})
    test::each_sample(name, [](const Operator& op, const Sample& s) {
      const NDArray weight = s.inputs.size() > 3 ? s.inputs[3] : NDArray();
      const Values head = test::values(s.inputs[0]);
      test::expect_values(class_loss(s.inputs[1], s.inputs[2], weight, options_of(s.attrs), head).dx,
                          call(op, s.attrs, s.inputs)[0], s.label, 4);
    });
}

TEST(LossOp, CrossEntropyIsNllOfLogSoftmax) {
  const NDArray x = test::numbers({40, 7}, f64), labels = (arange(40) % 7), weight = arange(7) * 0.5 + 0.25;
  for (const char* reduction : {"none", "mean", "sum"}) {
    const ClassLossOptions options{.weight = weight, .ignore_index = 3, .reduction = reduction};
    test::expect_values(test::values(nll_loss(log_softmax(x), labels, options)),
                        cross_entropy(x, labels, options), reduction, 100);
    const NDArray head = std::string(reduction) == "none" ? test::numbers({40}, f64, 2) : full({}, 2.5, f64);
    const NDArray through =
        log_softmax_backward(nll_loss_backward(head, log_softmax(x), labels, options), log_softmax(x));
    test::expect_values(test::values(through), cross_entropy_backward(head, x, labels, options), reduction,
                        100);
  }
}

// Computed by hand: uniform scores give the logarithm of the number of classes, for any smoothing.
TEST(LossOp, KnownValues) {
  const NDArray x = zeros({3, 4}, f64), labels = array<int64_t>({0, 1, 3});
  test::expect_values({std::log(4.0)}, cross_entropy(x, labels), "uniform");
  test::expect_values({std::log(4.0)}, cross_entropy(x, labels, {.label_smoothing = 0.3}), "smoothed");
  test::expect_values({3 * std::log(4.0)}, cross_entropy(x, labels, {.reduction = "sum"}), "sum");
  test::expect_values({0}, cross_entropy(array({{1000., 0.}}), array<int64_t>({0})), "large");
  test::expect_values({1000}, cross_entropy(array({{1000., 0.}}), array<int64_t>({1})), "wrong and large");
  test::expect_values({kNan}, cross_entropy(x, full({3}, -100, i64)), "mean of no rows");
}

// As softmax() has it, and with the same for the gradient.
TEST(LossOp, RowsWithoutAFiniteSumAreNan) {
  for (const NDArray& row : {array({{0., kInfinity, 1.}}), full({1, 3}, -kInfinity, f64)})
    for (const double smoothing : {0.0, 0.2}) {
      const NDArray label = zeros({1}, i64);
      const ClassLossOptions options{.label_smoothing = smoothing};
      EXPECT_TRUE(std::isnan(cross_entropy(row, label, options).item<double>()));
      EXPECT_TRUE(all(isnan(cross_entropy_backward(ones({}, f64), row, label, options))).item<bool>());
    }
}

TEST(LossOp, ALabelThatIsNoClassComesOutOfWaiting) {
  const NDArray loss = cross_entropy(zeros({2, 3}), array<int64_t>({0, 3}));
  const std::string text = error_of<InvalidArgument>([&] { loss.item<float>(); });
  EXPECT_TRUE(contains(text, "got 3 at position (1,)")) << text;
}

TEST(LossOp, ErrorsNameWhatCame) {
  const NDArray x = zeros({2, 3}), labels = zeros({2}, i64);
  const auto text = [](const std::function<void()>& f) { return error_of<InvalidArgument>(f); };
  EXPECT_TRUE(contains(text([&] { cross_entropy(x, zeros({3}, i64)); }), "labels of shape (2,)"));
  EXPECT_TRUE(
      contains(text([&] {
                 cross_entropy(x, zeros({2, 2}));
               }),
               "a distribution of the scores' shape (2, 3), or integer labels of shape (2,), got f32"));
  EXPECT_TRUE(
      contains(text([&] { cross_entropy(x, x, {.ignore_index = 1}); }), "no ignore_index for a target"));
  EXPECT_TRUE(contains(text([&] { nll_loss(x, x); }), "expected integer labels, got f32"));
  EXPECT_TRUE(contains(text([&] { cross_entropy(zeros({2, 3}, i32), labels); }), "got i32"));
  EXPECT_TRUE(contains(text([&] { cross_entropy(x, labels, {.weight = zeros({2})}); }), "each of 3 classes"));
  EXPECT_TRUE(contains(text([&] { cross_entropy(x, labels, {.label_smoothing = 2}); }), "from 0 to 1"));
  EXPECT_TRUE(contains(text([&] { cross_entropy(x, labels, {.reduction = "avg"}); }), "\"avg\""));
  EXPECT_TRUE(contains(text([&] { nll_loss(x, labels, {.label_smoothing = 0.5}); }), "[nll_loss]"));
  EXPECT_TRUE(contains(text([&] { cross_entropy_backward(zeros({2}), x, labels); }), "the loss's shape ()"));
  EXPECT_TRUE(contains(text([&] { mse_loss(zeros({3}), zeros({3, 1})); }), "(3,)"));
  EXPECT_TRUE(contains(text([&] { l1_loss(x, x, "batchmean"); }), "[l1_loss]"));
  EXPECT_TRUE(contains(text([&] { huber_loss(x, x, 0); }), "above 0"));
  EXPECT_TRUE(contains(text([&] { smooth_l1_loss(x, x, -1); }), "at least 0"));
  EXPECT_TRUE(contains(text([&] { mse_loss(labels, labels); }), "expected a floating-point input, got i64"));
  EXPECT_TRUE(contains(text([&] { kl_div(full({}, 1.f), full({}, 1.f), "batchmean"); }), "got rank 0"));
  EXPECT_TRUE(contains(text([&] {
                         bce_with_logits(x, x, "mean", zeros({2, 2, 3}));
                       }),
                       "pos_weight that broadcasts"));
}

struct Elementwise {
  const char* name;
  std::function<NDArray(const NDArray&, const NDArray&, const std::string&)> loss;
  std::function<double(double, double)> of;
  enum { any, probabilities, signs } inputs;
};

double huber(double z, double delta) {
  z = std::abs(z);
  return z < delta ? 0.5 * z * z : delta * (z - 0.5 * delta);
}
double log_at_least(double x) { return std::max(std::log(x), -100.0); }

const Elementwise kElementwise[] = {
    {"bce", [](auto& x, auto& t, auto& r) { return bce_loss(x, t, r); },
     [](double x, double t) { return -t * log_at_least(x) - (1 - t) * log_at_least(1 - x); },
     Elementwise::probabilities},
    {"bce_with_logits", [](auto& x, auto& t, auto& r) { return bce_with_logits(x, t, r); },
     [](double x, double t) {
       return -t * std::log(1 / (1 + std::exp(-x))) - (1 - t) * std::log(1 / (1 + std::exp(x)));
     },
     Elementwise::probabilities},
    {"bce_with_logits, pos_weight",
     [](auto& x, auto& t, auto& r) { return bce_with_logits(x, t, r, full({}, 3, x.dtype())); },
     [](double x, double t) {
       return -3 * t * std::log(1 / (1 + std::exp(-x))) - (1 - t) * std::log(1 / (1 + std::exp(x)));
     },
     Elementwise::probabilities},
    {"mse", [](auto& x, auto& t, auto& r) { return mse_loss(x, t, r); },
     [](double x, double t) { return (x - t) * (x - t); }, Elementwise::any},
    {"l1", [](auto& x, auto& t, auto& r) { return l1_loss(x, t, r); },
     [](double x, double t) { return std::abs(x - t); }, Elementwise::any},
    {"huber", [](auto& x, auto& t, auto& r) { return huber_loss(x, t, 0.75, r); },
     [](double x, double t) { return huber(x - t, 0.75); }, Elementwise::any},
    {"smooth_l1", [](auto& x, auto& t, auto& r) { return smooth_l1_loss(x, t, 0.5, r); },
     [](double x, double t) { return huber(x - t, 0.5) / 0.5; }, Elementwise::any},
    {"smooth_l1, beta = 0", [](auto& x, auto& t, auto& r) { return smooth_l1_loss(x, t, 0, r); },
     [](double x, double t) { return std::abs(x - t); }, Elementwise::any},
    {"kl_div", [](auto& x, auto& t, auto& r) { return kl_div(x, t, r); },
     [](double x, double t) { return t == 0 ? 0 : t * (std::log(t) - x); }, Elementwise::probabilities},
    {"kl_div, log_target", [](auto& x, auto& t, auto& r) { return kl_div(x, t, r, true); },
     [](double x, double t) { return std::exp(t) * (t - x); }, Elementwise::any},
    {"hinge", [](auto& x, auto& t, auto& r) { return hinge_loss(x, t, 1.5, r); },
     [](double x, double t) { return std::max(0.0, 1.5 - x * t); }, Elementwise::signs},
    {"hinge_embedding", [](auto& x, auto& t, auto& r) { return hinge_embedding_loss(x, t, 1.5, r); },
     [](double x, double t) { return t == 1 ? x : std::max(0.0, 1.5 - x); }, Elementwise::signs},
};

TEST(LossOp, ElementwiseLossesAgreeWithTheirDefinitions) {
  for (DType dtype : {f32, f64, f16, bf16})
    for (const Elementwise& test : kElementwise) {
      NDArray x = test::numbers({3, 8}, dtype, 1), t = test::numbers({3, 8}, dtype, 2);
      if (test.inputs == Elementwise::probabilities) {
        x = sigmoid(x);
        t = maximum(sigmoid(t) - 0.25, 0);
      }
      if (test.inputs == Elementwise::signs) t = sign(t);
      const Values a = test::values(x), b = test::values(t);
      Values want;
      double total = 0;
      for (size_t i = 0; i < a.size(); ++i) {
        want.push_back(test.of(a[i], b[i]));
        total += want.back();
      }
      const std::string what = std::string(test.name) + ' ' + to_string(dtype);
      test::expect_values(want, test.loss(x, t, "none"), what, 8);
      test::expect_values({total}, test.loss(x, t, "sum"), what, 16);
      test::expect_values({total / 24}, test.loss(x, t, "mean"), what, 8);
      EXPECT_EQ(dtype, test.loss(x, t, "mean").dtype()) << what;
    }
}

/// A loss of one element and its derivative with respect to x, with the weight of positives.
struct Pointwise {
  const char* name;  // in elementwise_loss_backward
  std::function<double(double x, double t, double w, double p)> of, slope;
};

double log_sigmoid(double x) { return -std::log1p(std::exp(-x)); }
double sign_of(double z) { return z > 0 ? 1 : z < 0 ? -1 : 0; }

const Pointwise kPointwise[] = {
    {"mse", [](double x, double t, double, double) { return (x - t) * (x - t); },
     [](double x, double t, double, double) { return 2 * (x - t); }},
    {"l1", [](double x, double t, double, double) { return std::abs(x - t); },
     [](double x, double t, double, double) { return sign_of(x - t); }},
    {"huber", [](double x, double t, double, double p) { return huber(x - t, p); },
     [](double x, double t, double, double p) { return std::clamp(x - t, -p, p); }},
    {"smooth_l1", [](double x, double t, double, double p) { return huber(x - t, p) / p; },
     [](double x, double t, double, double p) { return std::clamp((x - t) / p, -1.0, 1.0); }},
    {"bce",
     [](double x, double t, double, double) { return -t * log_at_least(x) - (1 - t) * log_at_least(1 - x); },
     [](double x, double t, double, double) { return (1 - t) / (1 - x) - t / x; }},
    {"bce_with_logits",
     [](double x, double t, double w, double) { return -w * t * log_sigmoid(x) - (1 - t) * log_sigmoid(-x); },
     [](double x, double t, double w, double) {
       return (1 - t) / (1 + std::exp(-x)) - w * t / (1 + std::exp(x));
     }},
    {"kl_div", [](double x, double t, double, double) { return t * (std::log(t) - x); },
     [](double, double t, double, double) { return -t; }},
    {"kl_div_log", [](double x, double t, double, double) { return std::exp(t) * (t - x); },
     [](double, double t, double, double) { return -std::exp(t); }},
    {"hinge", [](double x, double t, double, double p) { return std::max(0.0, p - x * t); },
     [](double x, double t, double, double p) { return x * t < p ? -t : 0; }},
    {"hinge_embedding",
     [](double x, double t, double, double p) { return t == 1 ? x : std::max(0.0, p - x); },
     [](double x, double t, double, double p) { return t == 1  ? 1
                                                       : x < p ? -1
                                                               : 0; }},
};

double divisor_of(const std::string& reduction, const Shape& x) {
  return reduction == "mean"        ? static_cast<double>(x.numel())
         : reduction == "batchmean" ? static_cast<double>(x[0])
                                    : 1;
}

// Reads attributes by their names in files, because the structs of the records are private.
TEST(LossOp, ElementwiseLossesAgreeWithTheirDefinitionsForAllSamplesAndTypes) {
  const auto option = [](const AttrMap& attrs, const char* name, auto otherwise) {
    const auto found = attrs.find(name);
    return found == attrs.end() ? otherwise : std::get<decltype(otherwise)>(found->second);
  };
  const auto weights = [](const Sample& s, size_t i, const Shape& shape) {
    return test::values(s.inputs.size() > i ? s.inputs[i].to(f64).broadcast_to(shape) : ones(shape, f64));
  };
  for (const char* name : {"mse_loss", "l1_loss", "huber_loss", "smooth_l1_loss", "bce_loss",
                           "bce_with_logits", "kl_div", "hinge_loss", "hinge_embedding_loss"})
    test::each_sample(name, [&](const Operator& op, const Sample& s) {
      const AttrMap attrs = s.attrs.to_map();
      const double p = option(attrs, "delta", option(attrs, "beta", option(attrs, "margin", 0.0)));
      std::string own = name;
      if (own.ends_with("_loss")) own.resize(own.size() - 5);
      if (option(attrs, "log_target", false)) own += "_log";
      if (own == "smooth_l1" && p == 0) own = "l1";
      const Pointwise& loss = *std::ranges::find(kPointwise, own, &Pointwise::name);
      const Shape& shape = s.inputs[0].shape();
      const Values x = test::values(s.inputs[0]), t = test::values(s.inputs[1]), w = weights(s, 2, shape);
      Values each;
      double total = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        each.push_back(loss.of(x[i], t[i], w[i], p));
        total += each.back();
      }
      const auto reduction = option(attrs, "reduction", std::string());
      test::expect_values(reduction == "none" ? each : Values{total / divisor_of(reduction, shape)},
                          call(op, s.attrs, s.inputs)[0], std::string(name) + ' ' + s.label, 8);
    });
  test::each_sample("elementwise_loss_backward", [&](const Operator& op, const Sample& s) {
    const AttrMap attrs = s.attrs.to_map();
    const Pointwise& loss =
        *std::ranges::find(kPointwise, option(attrs, "loss", std::string()), &Pointwise::name);
    const double p = option(attrs, "parameter", 0.0);
    const auto reduction = option(attrs, "reduction", std::string());
    const Shape& shape = s.inputs[1].shape();
    const Values head = test::values(s.inputs[0]), x = test::values(s.inputs[1]),
                 t = test::values(s.inputs[2]), w = weights(s, 3, shape);
    Values expected;
    for (size_t i = 0; i < x.size(); ++i)
      expected.push_back(loss.slope(x[i], t[i], w[i], p) *
                         (reduction == "none" ? head[i] : head[0] / divisor_of(reduction, shape)));
    test::expect_values(expected, call(op, s.attrs, s.inputs)[0], s.label, 8);
  });
}

// Every layout, type and length is split into different blocks.
TEST(LossOp, LargeElementwiseLossesAreTheSumOfTheirElements) {
  for (DType type : {f32, f64, bf16})
    for (int64_t n : {1, 63, 1024, 1025, 100000}) {
      const NDArray x = test::numbers({n}, type, 1), t = test::numbers({n}, f32, 2);
      const Values each = test::values(huber_loss(x, t, 0.5, "none"));
      double total = 0;
      for (double loss : each) total += loss;
      test::expect_values({total}, huber_loss(x, t, 0.5, "sum"), to_string(type), 16);
      const NDArray pairs = stack({x, x}, 1);  // x is every other element of pairs
      EXPECT_EQ(huber_loss(x, t, 0.5, "sum").item<double>(),
                huber_loss(pairs.select(1, 1), t, 0.5, "sum").item<double>());
    }
}

TEST(LossOp, ElementwiseLossesOfNothing) {
  const NDArray none = zeros({0, 3});
  EXPECT_EQ(0, mse_loss(none, none, "sum").item<float>());
  EXPECT_TRUE(std::isnan(mse_loss(none, none).item<float>()));
  EXPECT_TRUE(std::isnan(kl_div(none, none, "batchmean").item<float>()));
  EXPECT_EQ((Shape{0, 3}), huber_loss(none, none, 1, "none").shape());
}

TEST(LossOp, ElementwiseLossesStayFiniteWhereTheirFormulasDoNot) {
  test::expect_values({0, 100, 100}, bce_loss(array({1., 0., 1.}), array({1., 1., 0.}), "none"), "bce");
  test::expect_values({0, 1e4}, bce_with_logits(array({1e4f, -1e4f}), array({1.f, 1.f}), "none"), "logits");
  test::expect_values({0}, kl_div(array({-2.}), array({0.})), "kl_div");
  test::expect_values({1e30 - 0.5}, huber_loss(array({1e30f}), array({0.f})), "huber");
  const NDArray x = log(array({{0.5, 0.5}, {0.25, 0.75}})), t = array({{0.25, 0.75}, {0.5, 0.5}});
  test::expect_values({test::values(kl_div(x, t, "sum"))[0] / 2}, kl_div(x, t, "batchmean"), "batchmean");
}

}  // namespace
}  // namespace mx
