// Initialisers: values that arrays of weights start with. Those of torch.nn.init, and Apache MXNet's bilinear
// and mixed ones.
//
//   nn::init::xavier_uniform_(fc.weight);
//   nn::init::mixed(net, {{"bias$", nn::init::zeros_}, {"", [](NDArray w) { nn::init::orthogonal_(w); }}});
//
// All set the array in place, without being recorded, and return it. They may be given any view, on any
// device. Random ones draw from `generator`, by default the default generator of the CPU, wherever the array
// is: the numbers depend on the generator, on shape and type, and on nothing else. f16 and bf16 get the
// rounded numbers of f32. Arrays without elements stay as they are.
//
// They return before the values are there, but for trunc_normal_, orthogonal_ and sparse_, which compute on
// the calling thread and wait for their random numbers. All throw InvalidArgument for shapes and numbers that
// make no sense, before anything is drawn or set.
//
// `fan`: how many inputs (fan_in) and outputs (fan_out) an element of the result depends on; a weight is
// (out, in, kernel...), as in Linear and convolutions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ndarray/ndarray.h"
#include "operators/random.h"

namespace mx::nn {

class Module;

namespace init {

NDArray zeros_(NDArray a);
NDArray ones_(NDArray a);
NDArray constant_(NDArray a, double value);
/// Uniform in [low, high), low <= high.
NDArray uniform_(NDArray a, double low = 0, double high = 1, Generator* generator = nullptr);
NDArray normal_(NDArray a, double mean = 0, double deviation = 1, Generator* generator = nullptr);
/// normal_ under the condition that low <= value <= high, low < high: any interval, also far outside and
/// without ends (infinity). Beyond 37 deviations all values are the end that is nearest to the mean.
NDArray trunc_normal_(NDArray a, double mean = 0, double deviation = 1, double low = -2, double high = 2,
                      Generator* generator = nullptr);

struct Fans {
  int64_t in, out;
};
/// Throws InvalidArgument for a shape of fewer than two dimensions.
Fans fans_of(const Shape& shape);
/// The factor that keeps the variance through a nonlinearity, by torch's name: "linear", "conv1d" and so on
/// and "sigmoid" 1, "tanh" 5/3, "relu" sqrt(2), "leaky_relu" sqrt(2 / (1 + parameter^2)), "selu" 3/4. Throws
/// InvalidArgument for others.
double calculate_gain(const std::string& nonlinearity, double parameter = 0.01);

/// Uniform with the bound gain sqrt(6 / (fan_in + fan_out)); normal with the deviation
/// gain sqrt(2 / (fan_in + fan_out)). Source: Glorot and Bengio, 2010.
NDArray xavier_uniform_(NDArray a, double gain = 1, Generator* generator = nullptr);
NDArray xavier_normal_(NDArray a, double gain = 1, Generator* generator = nullptr);

struct KaimingOptions {
  double a = 0;                 ///< the slope of leaky_relu
  std::string mode = "fan_in";  ///< or "fan_out", or "fan_avg", their mean
  std::string nonlinearity = "leaky_relu";
};
/// Uniform with the bound gain sqrt(3 / fan); normal with the deviation gain / sqrt(fan). Source: He et al.,
/// 2015.
NDArray kaiming_uniform_(NDArray a, const KaimingOptions& options = {}, Generator* generator = nullptr);
NDArray kaiming_normal_(NDArray a, const KaimingOptions& options = {}, Generator* generator = nullptr);

/// Rows, or columns where those are fewer, that are orthogonal to each other and of length gain: Q of a
/// random normal matrix, which makes every direction as likely. Dimensions after the first count as columns.
/// Source: Saxe et al., 2013; Mezzadri, 2007, for the signs. On another instruction set the last digits may
/// differ.
NDArray orthogonal_(NDArray a, double gain = 1, Generator* generator = nullptr);
/// Ones on the diagonal of a matrix, zeros elsewhere.
NDArray eye_(NDArray a);
/// The identity as a convolution: weights of 3 to 5 dimensions pass as many channels as they can, in each of
/// `groups` groups, which must divide the number of outputs.
NDArray dirac_(NDArray a, int64_t groups = 1);
/// A matrix of which in each column the fraction `sparsity`, rounded up to whole elements, is 0, chosen at
/// random; the others are normal with that deviation.
NDArray sparse_(NDArray a, double sparsity, double deviation = 0.01, Generator* generator = nullptr);
/// Bilinear interpolation as the kernel of a transposed convolution: the last two dimensions get the outer
/// product of two triangles, symmetric ones, the same in all channels. 4 dimensions. Source: Long et al.,
/// "Fully Convolutional Networks for Semantic Segmentation", 2015.
NDArray bilinear_(NDArray a);

/// Sets one array.
using Initializer = std::function<void(NDArray)>;

struct Rule {
  std::string pattern;  ///< an ECMAScript expression, found anywhere in the name; "" fits all
  Initializer initializer;
};
/// Sets each parameter of a module by the first rule that fits its name. Throws InvalidArgument, before
/// anything is set, for patterns that do not parse and names that no rule fits, all of them.
void mixed(const Module& module, const std::vector<Rule>& rules);

}  // namespace init
}  // namespace mx::nn
