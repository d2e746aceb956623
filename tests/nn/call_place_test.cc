// Errors that functions of nn, the trainer and automatic differentiation throw themselves name the line of
// the call. tests/operators/place_test.cc does the same for operators.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "executor/autograd/autograd.h"
#include "executor/autograd/checkpoint.h"
#include "executor/autograd/functional.h"
#include "ndarray/io/io_error.h"
#include "nn/generation/generate.h"
#include "nn/generation/sampling.h"
#include "nn/more_losses.h"
#include "nn/nn.h"
#include "nn/trainer.h"
#include "operators/operators.h"
#include "optim/averages.h"
#include "optim/cycles.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;

template <class E = InvalidArgument>
void refused(int line, const std::function<void()>& call) {
  const std::string text = error_of<E>(call);
  EXPECT_TRUE(text.ends_with("call_place_test.cc:" + std::to_string(line) + ")")) << text;
  EXPECT_EQ(text.find("called at"), text.rfind("called at")) << text;
}

TEST(CallPlaceOfNn, OfActivations) {
  const NDArray x = ones({2, 3}), number = ones({2}, i32);
  refused(__LINE__, [&] { nn::prelu(x, ones({4})); });
  refused(__LINE__, [&] { nn::celu(x, 0); });
  refused(__LINE__, [&] { nn::scaled_softplus(x, 0); });
  refused(__LINE__, [&] { nn::softshrink(x, -1); });
  refused(__LINE__, [&] { nn::hardshrink(x, -1); });
  refused(__LINE__, [&] { nn::rrelu(x, 1, 0); });
  refused(__LINE__, [&] { nn::glu(x); });
}

TEST(CallPlaceOfNn, OfLosses) {
  const NDArray x = ones({2, 3}), bad = ones({5}), labels = zeros({2}, i64);
  refused(__LINE__, [&] { nn::cosine_embedding_loss(x, x, bad); });
  refused(__LINE__, [&] { nn::margin_ranking_loss(x, x, x, 0, "most"); });
  refused(__LINE__, [&] { nn::triplet_margin_loss(x, x, x, {.reduction = "most"}); });
  refused(__LINE__, [&] { nn::poisson_nll_loss(x, x, {.reduction = "most"}); });
  refused(__LINE__, [&] { nn::gaussian_nll_loss(x, x, bad); });
  refused(__LINE__, [&] { nn::multilabel_margin_loss(x, bad); });
  refused(__LINE__, [&] { nn::multi_margin_loss(x, bad); });
  refused(__LINE__, [&] { nn::multi_margin_loss(x, labels, {.p = 3}); });
  refused(__LINE__, [&] { nn::multilabel_soft_margin_loss(bad, x); });
  refused(__LINE__, [&] { nn::soft_margin_loss(x, x, "most"); });
  refused(__LINE__, [&] { nn::triplet_margin_with_distance_loss(x, x, x, {.reduction = "most"}); });
}

TEST(CallPlaceOfNn, OfGeneration) {
  const NDArray prompt = zeros({1, 2}, i64);
  nn::TokenModel model{.next_logits = {}, .positions = 4};
  refused(__LINE__, [&] { nn::generate(model, prompt); });
  model.next_logits = [](const NDArray&, const nn::KeyValueCache*) { return ones({7, 3}); };
  refused(__LINE__, [&] { nn::generate(model, prompt); });
  refused(__LINE__, [&] { nn::generate(model, ones({2})); });
  refused(__LINE__, [&] { nn::sample_tokens(ones({2}), {}); });
}

// The line is added to a copy of the error, so only to types that can be made from a text.
TEST(CallPlaceOfNn, ErrorsOfOtherTypesKeepTheirType) {
  struct OfTheProgram : InvalidArgument {
    using InvalidArgument::InvalidArgument;
  };
  const NDArray prompt = zeros({1, 2}, i64);
  nn::TokenModel model{.next_logits = [](const NDArray&, const nn::KeyValueCache*) -> NDArray {
                         throw FileError("open", "tokens", 2, "");
                       },
                       .positions = 4};
  EXPECT_FALSE(contains(error_of<FileError>([&] { nn::generate(model, prompt); }), "called at"));
  model.next_logits = [](const NDArray&, const nn::KeyValueCache*) -> NDArray { throw OfTheProgram("mine"); };
  EXPECT_EQ("mine", error_of<OfTheProgram>([&] { nn::generate(model, prompt); }));
}

TEST(CallPlaceOfNn, OfTheTrainer) {
  nn::Linear layer(2, 2);
  const Parameters own = layer.parameters();
  const optim::SGDOptions options;
  refused(__LINE__, [&] { nn::Trainer(Parameters{}, options); });
  refused(__LINE__, [&] { nn::Trainer(layer, options, nullptr, {.update_on_store = true}); });
  refused(__LINE__, [&] { nn::Trainer({own, own}, options, nullptr); });
  refused(__LINE__, [&] { nn::Trainer(std::vector<nn::Linear>{}, options, nullptr); });
  refused(__LINE__, [&] { nn::Trainer(layer, options, nullptr, {.bucket_bytes = -1}); });
  refused(__LINE__, [&] { nn::OptimizerChoice{nn::OptimizerChoice::Make()}; });
  refused(__LINE__, [&] { nn::replicate(layer, {}); });
  refused(__LINE__, [&] { nn::split_batch(ones({1}), {cpu(), cpu()}); });
  refused(__LINE__, [&] { nn::split_batch(ones({1}), {}); });

  nn::Trainer trainer(layer, options, KVStore::create(), {.update_on_store = true});
  refused(__LINE__, [&] { trainer.load_state_dict(NamedArrays{}); });
  const nn::Trainer kept = std::move(trainer);
  refused<InvalidState>(__LINE__, [&] { trainer.step(); });
  refused<InvalidState>(__LINE__, [&] { trainer.synchronise(); });
  refused<InvalidState>(__LINE__, [&] { trainer.state_dict(); });
  refused<InvalidState>(__LINE__, [&] { trainer.load_state_dict(NamedArrays{}); });
}

TEST(CallPlaceOfNn, OfAStepWithAnOptionThatTheTrainerCannotUse) {
  nn::Linear layer(2, 2);
  nn::Trainer trainer(layer, optim::SGDOptions{}, KVStore::create(), {.update_on_store = true});
  trainer.optimizer().set_loss_scale(optim::LossScale());
  refused(__LINE__, [&] { trainer.step(); });
}

TEST(CallPlaceOfNn, OfOptimisers) {
  nn::Linear layer(2, 2);
  optim::SGD sgd(layer.parameters());
  refused(__LINE__, [&] { optim::SequentialLR(sgd, {optim::SchedulePart()}, {}); });
  refused(__LINE__, [&] { optim::ChainedLR(sgd, {optim::SchedulePart()}); });
  optim::Averages averages(layer.parameters());
  averages.apply();
  refused<InvalidState>(__LINE__, [&] { averages.update(); });
}

TEST(CallPlaceOfNn, OfGradients) {
  const NDArray x = ones({2}).requires_grad_(), plain = ones({2}), y = x * x;
  refused(__LINE__, [&] { y.backward(); });
  refused(__LINE__, [&] { y.backward(ones({3})); });
  refused<InvalidState>(__LINE__, [&] { plain.backward(plain); });
  refused<InvalidState>(__LINE__, [&] { y.set_grad(plain); });
  refused<InvalidState>(__LINE__, [&] { plain.retain_grad(); });
  refused(__LINE__, [&] { x.add_grad_hook({}); });
  refused(__LINE__, [&] { backward({y}, {ones({3})}); });
  refused<InvalidState>(__LINE__, [&] { gradients({sum(y)}, {plain}); });
  refused(__LINE__, [&] { apply({x}, {}, {}); });
  refused(__LINE__, [&] { hvp([](const NDArray& a) { return sum(a * a); }, x, ones({3})); });
  refused(__LINE__, [&] { checkpoint(CheckpointFunction(), {x}); });
}

}  // namespace
}  // namespace mx
