// Layers that layers.h cannot list, because they have several inputs or inputs that are no numbers: results
// and gradients have the same bits in every mode of the engine and on every device, and second derivatives
// agree with finite differences.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "executor/autograd/autograd.h"
#include "nn/nn.h"
#include "tests/nn/models.h"
#include "tests/nn/second_derivatives.h"
#include "tests/operators/registry_support.h"
#include "tests/support/engine_cases.h"

namespace mx {
namespace {

using test::content_of;
using test::inputs;
using Arrays = std::vector<NDArray>;

/// A layer on a device, with its inputs.
struct Program {
  Arrays leaves;                    // the inputs, then the parameters
  std::function<Arrays()> results;  // the first one is derived
};

struct ProgramCase {
  std::string name;
  std::function<Program(Context, DType)> make;
  bool smooth = true;  // has second derivatives
};

void PrintTo(const ProgramCase& c, std::ostream* out) { *out << c.name; }

template <class Layer>
Program program(Layer layer, Context context, DType type, const std::vector<Shape>& shapes,
                std::function<Arrays(Layer&, const Arrays&)> call) {
  layer.to(context);
  layer.to(type);
  Arrays leaves;
  for (size_t i = 0; i < shapes.size(); ++i)
    leaves.push_back((inputs(shapes[i], f64) * (1 + 0.1 * static_cast<double>(i))).to(type).to(context));
  for (NDArray& leaf : leaves) leaf = leaf.clone().requires_grad_();
  const Arrays given = leaves;
  for (const NDArray& parameter : layer.parameters()) leaves.push_back(parameter);
  return {leaves, [layer, given, call = std::move(call)]() mutable { return call(layer, given); }};
}

SparseCSR small_graph(Context context, DType type) {
  return SparseCSR::from_coo(array<int64_t>({0, 1, 2, 3, 0}).to(context),
                             array<int64_t>({1, 0, 3, 2, 3}).to(context), ones({5}, type).to(context),
                             {4, 4});
}

template <class Layer, class... Options>
ProgramCase graph_case(const std::string& name, Options... options) {
  return {name, [=](Context context, DType type) {
            return program<Layer>(Layer(3, 2, options...), context, type, {{4, 3}},
                                  [=](Layer& layer, const Arrays& x) -> Arrays {
                                    return {layer(x[0], small_graph(context, type))};
                                  });
          }};
}

ProgramCase attention_case(const std::string& name, double rate, const nn::AttendOptions& options) {
  return {name, [=](Context context, DType type) {
            using Layer = nn::MultiheadAttention;
            return program<Layer>(Layer(4, 2, {.dropout = rate, .batch_first = true}), context, type,
                                  {{1, 3, 4}, {1, 3, 4}}, [=](Layer& layer, const Arrays& x) -> Arrays {
                                    return {layer(x[0], x[1], x[1], options).first};
                                  });
          }};
}

template <class Layer, class Options>
ProgramCase packed_case(const std::string& name, const Options& options) {
  return {name, [=](Context context, DType type) {
            return program<Layer>(Layer(3, 2, options), context, type, {{4, 3, 3}},
                                  [](Layer& layer, const Arrays& x) -> Arrays {
                                    return {layer(nn::pack_padded_sequence(x[0], {4, 2, 1})).first.data};
                                  });
          }};
}

ProgramCase embedding_case(const std::string& name, bool sparse) {
  return {name, [=](Context context, DType type) {
            return program<nn::Embedding>(nn::Embedding(5, 2, {.sparse = sparse}), context, type, {},
                                          [=](nn::Embedding& layer, const Arrays&) -> Arrays {
                                            return {layer(array<int64_t>({1, 4, 4}).to(context))};
                                          });
          }};
}

std::vector<ProgramCase> program_cases() {
  return {
      attention_case("AttentionWithWeights", 0, {}),
      attention_case("FusedAttention", 0, {.need_weights = false, .is_causal = true}),
      attention_case("AttentionWithDropout", 0.4, {.need_weights = false}),
      {"TransformerDecoder",
       [](Context context, DType type) {
         using Layer = nn::TransformerDecoder;
         const nn::TransformerDecoderLayer layer(
             4, 2, {.dim_feedforward = 3, .dropout = 0, .activation = "gelu", .batch_first = true});
         return program<Layer>(
             Layer(layer, 1), context, type, {{1, 3, 4}, {1, 4, 4}},
             [](Layer& decoder, const Arrays& x) -> Arrays { return {decoder(x[0], x[1])}; });
       }},
      {"Transformer",
       [](Context context, DType type) {
         using Layer = nn::Transformer;
         const Layer layer({.d_model = 4,
                            .nhead = 2,
                            .num_encoder_layers = 1,
                            .num_decoder_layers = 1,
                            .dim_feedforward = 3,
                            .dropout = 0,
                            .activation = "gelu"});
         return program<Layer>(
             layer, context, type, {{3, 1, 4}, {2, 1, 4}},
             [](Layer& transformer, const Arrays& x) -> Arrays { return {transformer(x[0], x[1])}; });
       }},
      {"GPT",
       [](Context context, DType type) {
         const nn::GPT gpt({.vocab_size = 5,
                            .n_positions = 4,
                            .n_embd = 4,
                            .n_layer = 1,
                            .n_head = 2,
                            .resid_pdrop = 0.2,
                            .embd_pdrop = 0.2,
                            .attn_pdrop = 0.2});
         return program<nn::GPT>(gpt, context, type, {}, [=](nn::GPT& net, const Arrays&) -> Arrays {
           return {net(array<int64_t>({{1, 2, 4}}).to(context))};
         });
       }},
      embedding_case("Embedding", false),
      embedding_case("EmbeddingWithSparseGradients", true),
      {"EmbeddingBag",
       [](Context context, DType type) {
         using Layer = nn::EmbeddingBag;
         return program<Layer>(Layer(9, 2), context, type, {}, [=](Layer& layer, const Arrays&) -> Arrays {
           return {layer(array<int64_t>({{1, 4}, {4, 8}}).to(context))};
         });
       }},
      {"Bilinear",
       [](Context context, DType type) {
         using Layer = nn::Bilinear;
         return program<Layer>(Layer(3, 4, 2), context, type, {{2, 3}, {2, 4}},
                               [](Layer& layer, const Arrays& x) -> Arrays { return {layer(x[0], x[1])}; });
       }},
      graph_case<nn::GCNConv>("GCNConv"),
      graph_case<nn::SAGEConv>("SAGEConv"),
      graph_case<nn::GATConv>("GATConv", nn::GATConvOptions{.heads = 2}),
      packed_case<nn::RNN>("PackedRNN", nn::RNNOptions{}),
      packed_case<nn::LSTM>("PackedLSTM", nn::RecurrentLayerOptions{.num_layers = 2, .bidirectional = true}),
      packed_case<nn::GRU>("PackedGRU", nn::RecurrentLayerOptions{}),
      {"MixtureOfExperts",
       [](Context context, DType type) {
         using Layer = nn::MixtureOfExperts;
         const Layer layer(6, {.experts = 4, .top_k = 2}, [] { return nn::Linear(6, 6); });
         return program<Layer>(layer, context, type, {{20, 6}},
                               [](Layer& mixture, const Arrays& x) -> Arrays {
                                 const nn::MixtureResult r = mixture.route(x[0]);
                                 return {r.output, r.balance_loss};
                               });
       },
       false},
      {"CTCLoss",
       [](Context context, DType type) {
         using Layer = nn::CTCLoss;
         return program<Layer>(
             Layer(), context, type, {{6, 2, 4}}, [=](Layer& layer, const Arrays& x) -> Arrays {
               return {layer(log_softmax(x[0], 2), array<int64_t>({{1, 2, 2}, {3, 1, 0}}).to(context),
                             array<int64_t>({6, 4}).to(context), array<int64_t>({3, 2}).to(context))};
             });
       },
       false},
  };
}

class SeveralInputs : public ::testing::TestWithParam<ProgramCase> {
 protected:
  SeveralInputs() { manual_seed(3); }
};
INSTANTIATE_TEST_SUITE_P(All, SeveralInputs, ::testing::ValuesIn(program_cases()),
                         [](const ::testing::TestParamInfo<ProgramCase>& test) { return test.param.name; });

TEST_P(SeveralInputs, ResultsAndGradientsHaveTheSameBitsEverywhere) {
  const auto run = [](Context context) {
    manual_seed(5);
    Program p = GetParam().make(context, f32);
    manual_seed(6);
    const Arrays results = p.results();
    sum(results[0] * results[0]).backward();
    std::vector<test::Content> contents;
    for (const NDArray& y : results) contents.push_back(content_of(y));
    for (const NDArray& leaf : p.leaves) {
      EXPECT_TRUE(leaf.grad().defined());
      contents.push_back(content_of(leaf.grad()));
    }
    return contents;
  };
  const std::vector<test::Content> expected = run(cpu());
  for (const Context context : {virt(0), virt(1)}) EXPECT_TRUE(expected == run(context)) << context;
  for (const test::EngineCase& c :
       {test::threaded_case(1), test::threaded_case(2), test::mode_case(EngineMode::naive, "naive"),
        test::mode_case(EngineMode::check, "check"), test::mode_case(EngineMode::fuzz, "fuzz", 7)}) {
    Engine engine(c.options);
    const EngineScope scope(engine);
    for (const Context context : {cpu(), virt(0)})
      EXPECT_TRUE(expected == run(context)) << c.name << ' ' << context;
  }
}

TEST_P(SeveralInputs, SecondDerivativesAgreeWithDifferences) {
  if (!GetParam().smooth) GTEST_SKIP() << "first derivatives only";
  Program p = GetParam().make(cpu(), f64);
  test::expect_second_derivatives(p.leaves, [&] {
    manual_seed(7);  // so that dropout drops the same elements again
    const NDArray y = p.results()[0];
    return sum(y * y);
  });
}

}  // namespace
}  // namespace mx
