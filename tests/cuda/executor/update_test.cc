// The update rules of optimisers on the executor, compared with the CPU's kernels: lists of many sizes, all
// types of gradients, numbers that are arrays, steps that are skipped.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "operators/kernels/update_rules.h"
#include "optim/detail/update_call.h"
#include "tests/cuda/executor/executor.h"
#include "tests/cuda/executor/kernel_cases.h"
#include "tests/cuda/executor/kernels_on_host.h"

namespace mx::test {
namespace {

using optim::detail::OtherRule;
using optim::detail::UpdateAttrs;
using optim::detail::UpdateCall;

/// Tensors with their memory.
struct Arrays {
  std::deque<std::vector<double>> memory;
  std::vector<Tensor> tensors;

  void add(DType type, int64_t n, std::mt19937& random, double low, double high) {
    memory.emplace_back(static_cast<size_t>(n) + 1);
    tensors.push_back({memory.back().data(), type, {n}, {1}});
    std::uniform_real_distribution<double> value(low, high);
    for (int64_t i = 0; i < n; ++i) set(tensors.back(), i, value(random));
  }
  void add_number(DType type, double x) {
    memory.emplace_back(1);
    tensors.push_back({memory.back().data(), type, {}, {}});
    set(tensors.back(), 0, x);
  }
  Arrays copy() const {
    Arrays other;
    for (size_t i = 0; i < tensors.size(); ++i) {
      other.memory.push_back(memory[i]);
      other.tensors.push_back(tensors[i]);
      other.tensors.back().data = other.memory.back().data();
    }
    return other;
  }
  static void set(const Tensor& t, int64_t i, double x) {
    visit(t.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      if constexpr (sizeof(T) == 8) {
        t.as<T>()[i] = static_cast<T>(x);
      } else {
        t.as<T>()[i] = static_cast<T>(static_cast<float>(x));
      }
    });
  }
  static double get(const Tensor& t, int64_t i) {
    return visit(t.dtype,
                 [&](auto tag) { return static_cast<double>(t.as<typename decltype(tag)::type>()[i]); });
  }
};

struct Options {
  bool counts = false, scale = false, skip = false, copies = false, maximize = false;
  double clip = 0, decay = 0, skip_value = 0;
};

template <class Rule, class Cpu>
void expect_cpu_results(const std::string& kernel, const Rule& rule, size_t states, DType type,
                        const Options& options, const Cpu& cpu) {
  std::mt19937 random(7);
  // More tensors than one launch takes; some are larger than a block's piece, and one is empty.
  std::vector<int64_t> sizes{5, 0, 5000, 2048, 2049, 1};
  if (kSlow) sizes = {5, 0, 2049, 1};
  for (int64_t i = 0; i < (kSlow ? 4 : 40); ++i) sizes.push_back(1 + i % 7);
  const DType types[] = {f32, f64, f16, bf16};
  Arrays in, out;
  for (size_t i = 0; i < sizes.size(); ++i) in.add(types[i % 4], sizes[i], random, -2, 2);
  in.add_number(f32, 0.125);
  UpdateAttrs<Rule> attrs{rule};
  attrs.step = !options.counts;
  attrs.scale = options.scale;
  attrs.skip = options.skip;
  attrs.copies = options.copies;
  attrs.counts = options.counts;
  if (attrs.step) in.add_number(f64, 3);
  if (attrs.scale) in.add_number(f32, 0.5);
  if (attrs.skip) in.add_number(f32, options.skip_value);
  for (size_t list = 0; list <= states; ++list)  // parameters, and state whose squares do not cancel
    for (const int64_t n : sizes) out.add(type, n, random, list == 0 ? -1 : 0.5, list == 0 ? 1 : 0.7);
  if (attrs.copies)
    for (const int64_t n : sizes) out.add(bf16, n, random, 0, 1);
  if (attrs.counts) {
    out.add(f64, static_cast<int64_t>(sizes.size()) + 1, random, 0, 1);
    for (int64_t i = 0; i <= static_cast<int64_t>(sizes.size()); ++i)
      Arrays::set(out.tensors.back(), i, static_cast<double>(i % 5));
    for (size_t i = 0; i < sizes.size(); ++i) attrs.rows.push_back(static_cast<int64_t>(sizes.size() - i));
  }
  const Attrs boxed = attrs;
  const Arrays expected = out.copy();
  cpu(KernelArgs{in.tensors, expected.tensors, &boxed});
  const Arrays got = out.copy();
  kernels_on_host().at(kernel)(KernelArgs{in.tensors, got.tensors, &boxed});
  for (size_t i = 0; i < got.tensors.size(); ++i) {
    const Tensor &a = expected.tensors[i], &b = got.tensors[i];
    const double tolerance = b.dtype == f64 ? 1e-11 : b.dtype == f32 ? 1e-5 : 1e-2;
    for (int64_t k = 0; k < a.numel(); ++k) {
      const double x = Arrays::get(a, k), y = Arrays::get(b, k);
      ASSERT_LE(std::abs(x - y), tolerance * (std::abs(x) + 0.1))
          << kernel << ", output " << i << ", element " << k << ": expected " << x << ", got " << y;
    }
  }
  // Another order of threads gives the same bits.
  executor_options() = {ThreadOrder::shuffled, 5};
  const Arrays again = out.copy();
  kernels_on_host().at(kernel)(KernelArgs{in.tensors, again.tensors, &boxed});
  executor_options() = {};
  for (size_t i = 0; i < got.memory.size(); ++i)
    ASSERT_EQ(
        0, std::memcmp(got.memory[i].data(), again.memory[i].data(), got.memory[i].size() * sizeof(double)));
}

void run_sgd_of_cpu(const KernelArgs& args) {
  const auto& r = args.attr<UpdateAttrs<optim::SgdRule>>().rule;
  const UpdateCall c = optim::detail::unpack<optim::SgdRule>(args);
  kernels::sgd_update(c.lists, c.states.empty() ? std::span<const Tensor>() : c.states[0], c.common,
                      {r.momentum, r.dampening, r.nesterov, r.ema, c.step, r.maximize});
}
void run_adam_of_cpu(const KernelArgs& args) {
  const auto& r = args.attr<UpdateAttrs<optim::AdamRule>>().rule;
  const UpdateCall c = optim::detail::unpack<optim::AdamRule>(args);
  kernels::adam_update(c.lists, c.states[0], c.states[1], c.common,
                       {r.beta1, r.beta2, r.eps, r.decoupled, r.bias_correction, c.step, r.maximize},
                       r.amsgrad ? c.states[2] : std::span<const Tensor>());
}
void run_rule_of_cpu(const KernelArgs& args) {
  const OtherRule& r = args.attr<UpdateAttrs<OtherRule>>().rule;
  const UpdateCall c = optim::detail::unpack<OtherRule>(args);
  kernels::rule_update(c.lists, c.states, c.common, r.rule, {r.maximize, c.step});
}

const std::vector<Options>& all_options() {
  static const std::vector<Options> all = {
      {},
      {.counts = true, .scale = true, .copies = true, .clip = 0.3, .decay = 0.1},
      {.scale = true, .skip = true, .maximize = true, .decay = 0.2},
      {.counts = true, .skip = true, .copies = true, .skip_value = 1},
  };
  return all;
}

std::vector<DType> tested_types() {
  if (kSlow) return {f32};
  return {f32, f64};
}

TEST(CudaUpdates, SgdIsThatOfTheCpu) {
  for (const DType type : tested_types())
    for (const Options& o : all_options())
      for (const optim::SgdRule& form : {optim::SgdRule{}, optim::SgdRule{.momentum = 0.9},
                                         optim::SgdRule{.momentum = 0.9, .nesterov = true},
                                         optim::SgdRule{.momentum = 0.8, .dampening = 0.5},
                                         optim::SgdRule{.momentum = 0.8, .nesterov = true, .ema = true}}) {
        optim::SgdRule rule = form;
        rule.weight_decay = o.decay;
        rule.clip = o.clip;
        rule.maximize = o.maximize;
        expect_cpu_results("update_by_sgd", rule, rule.momentum != 0 ? 1 : 0, type, o, run_sgd_of_cpu);
        if (HasFatalFailure()) return;
      }
}

TEST(CudaUpdates, AdamIsThatOfTheCpu) {
  for (const DType type : tested_types())
    for (const Options& o : all_options())
      for (const bool decoupled : {false, true})
        for (const bool amsgrad : {false, true}) {
          optim::AdamRule rule;
          rule.weight_decay = o.decay;
          rule.clip = o.clip;
          rule.maximize = o.maximize;
          rule.decoupled = decoupled;
          rule.amsgrad = amsgrad;
          rule.bias_correction = !(decoupled && amsgrad);
          expect_cpu_results("update_by_adam", rule, amsgrad ? 3 : 2, type, o, run_adam_of_cpu);
          if (HasFatalFailure()) return;
        }
}

TEST(CudaUpdates, OtherRulesAreThoseOfTheCpu) {
  const std::vector<kernels::UpdateRule> rules = {
      kernels::AdagradRule{.lr_decay = 0.1},
      kernels::AdadeltaRule{},
      kernels::RmspropRule{},
      kernels::RmspropRule{.momentum = 0.9},
      kernels::RmspropRule{.momentum = 0.9, .centered = true},
      kernels::RmspropRule{.centered = true},
      kernels::AdamaxRule{},
      kernels::NadamRule{},
      kernels::NadamRule{.decoupled = true},
      kernels::RadamRule{},
      kernels::RadamRule{.beta2 = 0.3, .decoupled = true},
      kernels::FtrlRule{},
      kernels::SignumRule{.wd_lh = 0.1},
      kernels::SignumRule{.momentum = 0},
      kernels::RpropRule{},
      kernels::AsgdRule{.t0 = 1},
      kernels::LarsRule{.momentum = 0.9},
      kernels::LarsRule{.adapt = false},
      kernels::LambRule{},
      kernels::LambRule{.lower_bound = 0.1, .upper_bound = 0.5, .bias_correction = false},
  };
  for (size_t i = 0; i < rules.size(); ++i) {
    SCOPED_TRACE("rule " + std::to_string(i));
    const size_t states = std::visit([](const auto& own) { return own.states(); }, rules[i]);
    for (const DType type : tested_types())
      for (const Options& o : all_options()) {
        expect_cpu_results("update_by_rule", OtherRule{rules[i], o.decay, o.clip, o.maximize}, states, type,
                           o, run_rule_of_cpu);
        if (HasFatalFailure()) return;
      }
  }
}

TEST(CudaUpdates, GlobalNormIsThatOfTheCpu) {
  std::mt19937 random(3);
  Arrays in, out;
  const DType types[] = {f32, f64, f16, bf16};
  for (int64_t i = 0; i < 70; ++i) in.add(types[i % 4], i == 3 ? 0 : 1 + i * 97, random, -2, 2);
  out.add_number(f64, 0);
  const Arrays expected = out.copy();
  kernels::total_norm(expected.tensors[0], in.tensors);
  kernels_on_host().at("global_norm")(KernelArgs{in.tensors, out.tensors});
  EXPECT_NEAR(Arrays::get(expected.tensors[0], 0), Arrays::get(out.tensors[0], 0), 1e-9);

  // Of nothing.
  kernels_on_host().at("global_norm")(KernelArgs{{}, out.tensors});
  EXPECT_EQ(0, Arrays::get(out.tensors[0], 0));
}

TEST(CudaUpdates, ClipScaleIsThatOfTheCpu) {
  const Attrs attrs = optim::detail::ClipAttrs{2};
  for (const double norm : {0., 1., 4., 1e9, std::nan("")}) {
    Arrays in, out;
    in.add_number(f64, norm);
    out.add_number(f64, -1);
    const Arrays expected = out.copy();
    kernels::clip_scale(expected.tensors[0], in.tensors[0], 2);
    kernels_on_host().at("clip_scale")(KernelArgs{in.tensors, out.tensors, &attrs});
    const double x = Arrays::get(expected.tensors[0], 0), y = Arrays::get(out.tensors[0], 0);
    EXPECT_TRUE(x == y || (std::isnan(x) && std::isnan(y))) << norm << ": expected " << x << ", got " << y;
  }
}

}  // namespace
}  // namespace mx::test
