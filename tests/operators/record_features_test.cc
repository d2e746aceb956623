// The record of an operator supports the features that later operators need. Each small operator here uses
// one of them: state, randomness, several outputs, any number of inputs, values saved for the gradient,
// in-place work, scratch memory, a library's handle.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "engine/base/check.h"
#include "operators/elementwise_binary.h"
#include "operators/kernels/random.h"
#include "operators/operator.h"
#include "operators/scratch.h"
#include "tests/operators/registry_support.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;

// State that is updated: a running mean, as in BatchNorm.

void run_running_mean(const KernelArgs& args) {
  const Tensor &x = args.in[0], &mean = args.in[1];
  const int64_t n = x.numel();
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x.as<float>()[i * x.strides[0]];
  *mean.as<float>() = 0.5f * *mean.as<float>() + 0.5f * static_cast<float>(sum / static_cast<double>(n));
  for (int64_t i = 0; i < n; ++i)
    args.out[0].as<float>()[i] = x.as<float>()[i * x.strides[0]] - *mean.as<float>();
}
const Operator kRunningMean = {.kernel = {"test_running_mean", run_running_mean},
                               .inputs = {"x", "mean"},
                               .infer = [](InferContext& c) { c.output(c.shape(0), f32); },
                               .updates = 0b10};

TEST(RecordFeatures, StateIsUpdatedInOrder) {
  const NDArray mean = zeros({});
  const NDArray first = call(kRunningMean, {}, ones({4}) * 8, mean);
  const NDArray between = mean.clone();
  const NDArray second = call(kRunningMean, {}, zeros({4}), mean);
  EXPECT_EQ(4.f, between.item<float>());
  EXPECT_EQ(2.f, mean.item<float>());
  EXPECT_EQ(4.f, first[0].item<float>());
  EXPECT_EQ(-2.f, second[3].item<float>());
  EXPECT_EQ(2u, mean.impl().storage->version() - 1) << "two changes after the fill";
}

// Randomness: the state (seed, offset) is an input and is advanced.

void run_noise(const KernelArgs& args) {
  int64_t* const state = args.in[1].as<int64_t>();
  kernels::random_uniform(args.out[0], 0, 1, static_cast<uint64_t>(state[0]),
                          static_cast<uint64_t>(state[1]));
  state[1] += args.out[0].numel();
}
const Operator kNoise = {.kernel = {"test_noise", run_noise},
                         .inputs = {"like", "state"},
                         .infer = [](InferContext& c) { c.output(c.shape(0), f32); },
                         .updates = 0b10,
                         .random = true};

TEST(RecordFeatures, RandomnessIsAStateAmongTheInputs) {
  const auto draw = [](NDArray state, int64_t n) { return call(kNoise, {}, zeros({n}), state); };
  const NDArray state = array<int64_t>({7, 0});
  std::vector<float> parts = draw(state, 100).to_vector<float>();
  for (float v : draw(state, 200).to_vector<float>()) parts.push_back(v);
  EXPECT_EQ(draw(array<int64_t>({7, 0}), 300).to_vector<float>(), parts);
  EXPECT_NE(draw(array<int64_t>({8, 0}), 300).to_vector<float>(), parts);
  EXPECT_EQ((std::vector<int64_t>{7, 300}), state.to_vector<int64_t>());
}

// Several outputs, one of them saved for the gradient: the largest element and its position.

void run_max_where(const KernelArgs& args) {
  const Tensor& x = args.in[0];
  int64_t best = 0;
  for (int64_t i = 1; i < x.numel(); ++i)
    if (x.as<float>()[i * x.strides[0]] > x.as<float>()[best * x.strides[0]]) best = i;
  *args.out[0].as<float>() = x.as<float>()[best * x.strides[0]];
  *args.out[1].as<int64_t>() = best;
}
void run_max_gradient(const KernelArgs& args) {
  const Tensor& out = args.out[0];
  std::memset(out.data, 0, static_cast<size_t>(out.numel()) * sizeof(float));
  out.as<float>()[*args.in[1].as<int64_t>()] = *args.in[0].as<float>();
}
struct LengthAttrs {
  int64_t length = 0;
  template <class V>
  static void fields(V&& v) {
    v("length", &LengthAttrs::length, "elements of x");
  }
};
const Operator kMaxGradient = {
    .kernel = {"test_max_gradient", run_max_gradient},
    .inputs = {"head", "at"},
    .attrs = &kAttrType<LengthAttrs>,
    .infer = [](InferContext& c) { c.output({c.attr<LengthAttrs>().length}, f32); }};
const Operator kMaxWhere = {
    .kernel = {"test_max_where", run_max_where},
    .inputs = {"x"},
    .outputs = {"y", "at"},
    .infer =
        [](InferContext& c) {
          MX_CHECK(c.shape(0).rank() == 1 && c.shape(0)[0] > 0, InvalidArgument,
                   "expected elements in a row, got shape ", c.shape(0));
          c.output({}, f32);
          c.output({}, i64);
        },
    .gradient =
        [](GradientContext& g) {
          g.set(0, call(kMaxGradient, LengthAttrs{g.input_shape(0).numel()}, g.head(), g.output(1)));
        },
    .gradient_uses = {.outputs = 1 << 1}};

TEST(RecordFeatures, SeveralOutputsAndSavedValues) {
  const std::vector<NDArray> in{array({3.f, 9.f, 4.f})};
  const std::vector<NDArray> out = call(kMaxWhere, {}, in);
  ASSERT_EQ(2u, out.size());
  EXPECT_EQ(9.f, out[0].item<float>());
  EXPECT_EQ(1, out[1].item<int64_t>());
  const NDArray head[] = {full({}, 5), {}};
  const std::vector<NDArray> gradient = test::call_gradient(kMaxWhere, {}, in, out, head);
  EXPECT_EQ((std::vector<float>{0, 5, 0}), gradient[0].to_vector<float>());
  EXPECT_EQ(9.f, call(kMaxWhere, {}, in[0]).item<float>()) << "who asks for one gets the first";
}

// Any number of inputs, one of them optional.

void run_add_all(const KernelArgs& args) {
  for (int64_t i = 0; i < args.out[0].numel(); ++i) {
    float sum = 0;
    for (const Tensor& x : args.in) sum += x.as<float>()[i];
    args.out[0].as<float>()[i] = sum;
  }
}
const Operator kAddAll = {.kernel = {"test_add_all", run_add_all},
                          .inputs = {"first", "more..."},
                          .infer = [](InferContext& c) { c.output(c.shape(0), f32); }};
const Operator kMaybe = {.kernel = {"test_maybe", run_add_all},
                         .inputs = {"x", "bias?"},
                         .infer = [](InferContext& c) { c.output(c.shape(0), f32); }};

TEST(RecordFeatures, AnyNumberOfInputs) {
  for (size_t n : {1u, 2u, 9u, 100u}) {
    std::vector<NDArray> inputs;
    for (size_t i = 0; i < n; ++i) inputs.push_back(full({3}, static_cast<float>(i)));
    const NDArray y = call(kAddAll, {}, inputs)[0];
    EXPECT_EQ(static_cast<float>(n * (n - 1) / 2), y[1].item<float>());
  }
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { call(kAddAll, {}, std::vector<NDArray>{}); }),
                       "expected 1 or more inputs, got 0"));
  EXPECT_EQ(1.f, call(kMaybe, {}, ones({1})).item<float>());
  EXPECT_EQ(2.f, call(kMaybe, {}, ones({1}), ones({1})).item<float>());
  EXPECT_TRUE(
      contains(error_of<InvalidArgument>([] { call(kMaybe, {}, std::vector<NDArray>(3, ones({1}))); }),
               "expected 1 to 2 inputs, got 3"));
}

// In place: the output is the input's memory when the record allows it.

std::atomic<bool> same_memory{false};
void run_negate(const KernelArgs& args) {
  same_memory = args.in[0].data == args.out[0].data;
  for (int64_t i = 0; i < args.out[0].numel(); ++i) args.out[0].as<float>()[i] = -args.in[0].as<float>()[i];
}
Operator negate(uint64_t in_place) {
  return {.kernel = {"test_negate", run_negate},
          .inputs = {"x"},
          .infer = [](InferContext& c) { c.output(c.shape(0), f32); },
          .in_place = in_place};
}

TEST(RecordFeatures, InPlaceIsUsedWhereTheRecordAllowsIt) {
  static const Operator may = negate(1), may_not = negate(0);
  for (const Operator* op : {&may, &may_not}) {
    NDArray x = ones({4});
    const NDArray inputs[] = {x};
    call_into(x, *op, {}, inputs);
    EXPECT_EQ(std::vector<float>(4, -1.f), x.to_vector<float>());
    EXPECT_EQ(op == &may, same_memory);
  }
}

// Scratch memory: a median needs a copy to sort.

void run_median(const KernelArgs& args) {
  const Tensor& x = args.in[0];
  const auto n = static_cast<size_t>(x.numel());
  const Scratch scratch(args, n * sizeof(float)), none(args, 0);
  MX_CHECK(none.data() == nullptr && reinterpret_cast<uintptr_t>(scratch.data()) % 64 == 0, InvalidState,
           "expected no memory for no bytes, and aligned memory else");
  float* const sorted = scratch.as<float>();
  for (size_t i = 0; i < n; ++i) sorted[i] = x.as<float>()[static_cast<int64_t>(i) * x.strides[0]];
  std::nth_element(sorted, sorted + n / 2, sorted + n);
  *args.out[0].as<float>() = sorted[n / 2];
}
const Operator kMedian = {.kernel = {"test_median", run_median},
                          .inputs = {"x"},
                          .infer = [](InferContext& c) { c.output({}, f32); }};

TEST(RecordFeatures, ScratchMemoryOnEveryDevice) {
  const NDArray x = arange(0, 10001, 1, f32).slice(0, {{}, {}, -1});
  std::vector<NDArray> results;
  for (int i = 0; i < 20; ++i) results.push_back(call(kMedian, {}, x + static_cast<float>(i)));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(5000.f + static_cast<float>(i), results[i].item<float>());
  EXPECT_EQ(5000.f, call(kMedian, {}, x.to(virt(0))).to(cpu()).item<float>());
}

// A library's handle: created once per thread.

struct Handle {
  static inline std::atomic<int> made{0};
  std::thread::id owner = std::this_thread::get_id();
  int uses = 0;
  explicit Handle(const KernelArgs&) { ++made; }
};
std::atomic<int> misused{0}, used{0};
void run_with_handle(const KernelArgs& args) {
  Handle& handle = kernel_resource<Handle>(args);
  misused += handle.owner != std::this_thread::get_id();
  ++handle.uses;
  ++used;
  *args.out[0].as<float>() = *args.in[0].as<float>();
}
const Operator kWithHandle = {.kernel = {"test_with_handle", run_with_handle},
                              .inputs = {"x"},
                              .infer = [](InferContext& c) { c.output({}, f32); }};

TEST(RecordFeatures, ALibrarysHandleIsMadeOncePerThread) {
  std::vector<NDArray> results;
  for (int i = 0; i < 200; ++i) results.push_back(call(kWithHandle, {}, full({}, i)));
  for (int i = 0; i < 200; ++i) EXPECT_EQ(static_cast<float>(i), results[i].item<float>());
  EXPECT_EQ(200, used);
  EXPECT_EQ(0, misused);
  EXPECT_LE(Handle::made, static_cast<int>(std::thread::hardware_concurrency()) + 8);
}

}  // namespace
}  // namespace mx
