#include "benchmarks/train/networks.h"

#include "benchmarks/train/runner.h"
#include "nn/activations.h"
#include "nn/convolution.h"
#include "nn/embedding.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/pooling.h"
#include "nn/recurrent.h"
#include "nn/shape_layers.h"
#include "nn/transformer.h"
#include "operators/random.h"
#include "operators/reduce.h"

namespace mx::bench {
namespace {

nn::Sequential mlp() {
  return nn::Sequential{nn::Linear{kMlpSizes[0], kMlpSizes[1]}, nn::ReLU{},
                        nn::Linear{kMlpSizes[1], kMlpSizes[2]}, nn::ReLU{},
                        nn::Linear{kMlpSizes[2], kMlpSizes[3]}};
}

nn::Sequential lenet() {
  return nn::Sequential{nn::Conv2d{1, 6, 5, {.padding = 2}},
                        nn::ReLU{},
                        nn::MaxPool2d{2},
                        nn::Conv2d{6, 16, 5},
                        nn::ReLU{},
                        nn::MaxPool2d{2},
                        nn::Flatten{},
                        nn::Linear{400, 120},
                        nn::ReLU{},
                        nn::Linear{120, 84},
                        nn::ReLU{},
                        nn::Linear{84, 10}};
}

nn::Conv2d conv(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
  return nn::Conv2d{in, out, kernel, {.stride = stride, .padding = kernel / 2, .bias = false}};
}

nn::AnyModule block(int64_t in, int64_t out, int64_t stride) {
  const nn::Sequential body{conv(in, out, 3, stride), nn::BatchNorm2d{out}, nn::ReLU{}, conv(out, out, 3, 1),
                            nn::BatchNorm2d{out}};
  if (in == out && stride == 1) return nn::Sequential{nn::Residual{body}, nn::ReLU{}};
  return nn::Sequential{nn::Residual{body, nn::Sequential{conv(in, out, 1, stride), nn::BatchNorm2d{out}}},
                        nn::ReLU{}};
}

nn::Sequential resnet18() {
  nn::Sequential net{conv(3, 64, 3, 1), nn::BatchNorm2d{64}, nn::ReLU{}};
  int64_t in = 64;
  for (const int64_t out : {64, 128, 256, 512}) {
    net.push_back(block(in, out, in == out ? 1 : 2)).push_back(block(out, out, 1));
    in = out;
  }
  return net.push_back(nn::GlobalAvgPool{}).push_back(nn::Flatten{}).push_back(nn::Linear{512, 10});
}

nn::AnyModule bottleneck(int64_t in, int64_t width, int64_t stride) {
  const int64_t out = 4 * width;
  const nn::Sequential body{conv(in, width, 1, 1),         nn::BatchNorm2d{width}, nn::ReLU{},
                            conv(width, width, 3, stride), nn::BatchNorm2d{width}, nn::ReLU{},
                            conv(width, out, 1, 1),        nn::BatchNorm2d{out}};
  if (in == out && stride == 1) return nn::Sequential{nn::Residual{body}, nn::ReLU{}};
  return nn::Sequential{nn::Residual{body, nn::Sequential{conv(in, out, 1, stride), nn::BatchNorm2d{out}}},
                        nn::ReLU{}};
}

nn::Sequential resnet50() {
  nn::Sequential net{conv(3, 64, 7, 2), nn::BatchNorm2d{64}, nn::ReLU{},
                     nn::MaxPool2d{3, {.stride = 2, .padding = 1}}};
  int64_t in = 64, width = 64;
  for (const int blocks : {3, 4, 6, 3}) {
    for (int k = 0; k < blocks; ++k) {
      net.push_back(bottleneck(in, width, k == 0 && width > 64 ? 2 : 1));
      in = 4 * width;
    }
    width *= 2;
  }
  return net.push_back(nn::GlobalAvgPool{}).push_back(nn::Flatten{}).push_back(nn::Linear{2048, 1000});
}

/// The result of the last step of an LSTM layer.
struct LastOfLstm : nn::ModuleOf<LastOfLstm> {
  nn::LSTM lstm = add("lstm", nn::LSTM(kLstmInputs, kLstmHidden));
  NDArray forward(const NDArray& x) override { return lstm(x).first.select(0, -1); }
};

nn::Sequential lstm() { return nn::Sequential{LastOfLstm{}, nn::Linear{kLstmHidden, 10}}; }

nn::Sequential transformer() {
  const nn::TransformerEncoderLayer layer(kWidth, kHeads, {.dim_feedforward = kFeedForward, .dropout = 0});
  return nn::Sequential{nn::Embedding{kVocabulary, kWidth}, nn::TransformerEncoder{layer, kLayers},
                        nn::Lambda{[](const NDArray& x) { return mean(x, 0); }}, nn::Linear{kWidth, 10}};
}

}  // namespace

std::vector<std::string> network_names() { return {"mlp", "lenet", "resnet18", "lstm", "transformer"}; }

nn::Sequential make_network(const std::string& name) {
  if (name == "lenet") return lenet();
  if (name == "resnet18") return resnet18();
  if (name == "resnet50") return resnet50();
  if (name == "lstm") return lstm();
  if (name == "transformer") return transformer();
  return mlp();
}

NDArray make_input(const std::string& name, int64_t batch) {
  if (name == "lenet") return randn({batch, 1, 28, 28});
  if (name == "resnet18") return randn({batch, 3, 32, 32});
  if (name == "resnet50") return randn({batch, 3, 224, 224});
  if (name == "lstm") return randn({kLstmSteps, batch, kLstmInputs});
  if (name == "transformer") return randint(0, kVocabulary, {kTokens, batch});
  return randn({batch, kMlpSizes[0]});
}

}  // namespace mx::bench
