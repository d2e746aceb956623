#include "benchmarks/train/networks.h"

#include "benchmarks/train/runner.h"
#include "nn/activations.h"
#include "nn/convolution.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/pooling.h"
#include "nn/shape_layers.h"

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

}  // namespace

std::vector<std::string> network_names() { return {"mlp", "lenet", "resnet18"}; }

nn::Sequential make_network(const std::string& name) {
  return name == "lenet" ? lenet() : name == "resnet18" ? resnet18() : mlp();
}

Shape input_shape(const std::string& name, int64_t batch) {
  if (name == "lenet") return {batch, 1, 28, 28};
  if (name == "resnet18") return {batch, 3, 32, 32};
  return {batch, kMlpSizes[0]};
}

}  // namespace mx::bench
