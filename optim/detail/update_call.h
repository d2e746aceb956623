// The tensors of a call of an update rule, in the order in which kernels get them. Internal.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ndarray/launch.h"
#include "operators/kernels/update.h"
#include "optim/update.h"

namespace mx::optim::detail {

/// Describes the order of a call's tensors; the flags tell which of those with a `?` are present.
///   in = gradients, learning rate, step?, scale?, skip?
///   out = parameters, each state, copies?, counts?
template <class Rule>
struct UpdateAttrs {
  Rule rule;
  bool step = false, scale = false, skip = false, copies = false, counts = false;
  std::vector<int64_t> rows = {};  // index in counts of each parameter; empty: entry i is that of parameter i
  template <class V>
  static void fields(V&&) {}
};

struct UpdateCall {
  kernels::UpdateLists lists;
  std::vector<std::span<const Tensor>> states;
  kernels::UpdateCommon common;
  const Tensor* step = nullptr;
};

template <class Rule>
UpdateCall unpack(const KernelArgs& args) {
  const auto& attrs = args.attr<UpdateAttrs<Rule>>();
  const size_t n = args.in.size() - 1 - attrs.step - attrs.scale - attrs.skip;
  UpdateCall call;
  call.lists = {args.out.first(n), args.in.first(n)};
  const Tensor* number = args.in.data() + n;
  call.common.learning_rate = *number++;
  if (attrs.step) call.step = number++;
  if (attrs.scale) call.common.scale = number++;
  if (attrs.skip) call.common.skip = number;
  call.common.clip = attrs.rule.clip;
  call.common.weight_decay = attrs.rule.weight_decay;
  std::span<const Tensor> out = args.out.subspan(n);
  if (attrs.counts) {
    call.common.counts = &out.back();
    call.common.rows = attrs.rows;
    out = out.first(out.size() - 1);
  }
  if (attrs.copies) {
    call.lists.copies = out.last(n);
    out = out.first(out.size() - n);
  }
  for (; !out.empty(); out = out.subspan(n)) call.states.push_back(out.first(n));
  return call;
}

struct OtherRule {
  UpdateRule rule;
  double weight_decay, clip;
  bool maximize;
};

struct ClipAttrs {
  double max_norm = 1;
  template <class V>
  static void fields(V&&) {}
};

}  // namespace mx::optim::detail
