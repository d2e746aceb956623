// Initialisers for arrays of weights: those of torch.nn.init, and Apache MXNet's bilinear and mixed.
//
//   nn::init::xavier_uniform_(fc.weight);
//   nn::init::mixed(net, {{"bias$", nn::init::zeros_}, {"", [](NDArray w) { nn::init::orthogonal_(w); }}});
//
// Each one sets the array in place, without recording, and returns it. The array may be any view, on any
// device. Random initialisers draw from `generator`; the default is the CPU's default generator, whatever the
// array's device. So the values depend only on the generator, the shape and the type. f16 and bf16 arrays get
// the values of f32, rounded. An array without elements is left unchanged.
//
// They return before the values are computed, except trunc_normal_, orthogonal_ and sparse_: these compute on
// the calling thread and wait for their random numbers. All throw InvalidArgument for an invalid shape or
// number, before anything is drawn or set.
//
// fan_in and fan_out are the numbers of inputs and outputs that one element of a layer is connected to. They
// follow from the shape of the weight, which is (out, in, kernel...) as in Linear and convolutions.
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
NDArray normal_(NDArray a, double mean = 0, double stddev = 1, Generator* generator = nullptr);
/// The normal distribution truncated to [low, high], low < high. The interval may lie far from the mean, and
/// its ends may be infinite. If it lies more than 37 standard deviations from the mean, every value is the
/// end nearest to the mean.
NDArray trunc_normal_(NDArray a, double mean = 0, double stddev = 1, double low = -2, double high = 2,
                      Generator* generator = nullptr);

struct Fans {
  int64_t in, out;
};
/// Throws InvalidArgument for a shape of fewer than two dimensions.
Fans fans_of(const Shape& shape);
/// Returns the gain that preserves the variance through a nonlinearity, which has torch's name: 1 for
/// "linear", "conv1d" and so on and "sigmoid", 5/3 for "tanh", sqrt(2) for "relu", sqrt(2 / (1 +
/// parameter^2)) for "leaky_relu", 3/4 for "selu". Throws InvalidArgument for another name.
double calculate_gain(const std::string& nonlinearity, double parameter = 0.01);

/// xavier_uniform_ is uniform with the bound gain sqrt(6 / (fan_in + fan_out)). xavier_normal_ is normal with
/// the standard deviation gain sqrt(2 / (fan_in + fan_out)). Source: Glorot and Bengio, 2010.
NDArray xavier_uniform_(NDArray a, double gain = 1, Generator* generator = nullptr);
NDArray xavier_normal_(NDArray a, double gain = 1, Generator* generator = nullptr);

struct KaimingOptions {
  double a = 0;                 ///< slope of leaky_relu
  std::string mode = "fan_in";  ///< "fan_in", "fan_out", or "fan_avg" for the mean of both
  std::string nonlinearity = "leaky_relu";
};
/// kaiming_uniform_ is uniform with the bound gain sqrt(3 / fan). kaiming_normal_ is normal with the
/// standard deviation gain / sqrt(fan). Source: He et al., 2015.
NDArray kaiming_uniform_(NDArray a, const KaimingOptions& options = {}, Generator* generator = nullptr);
NDArray kaiming_normal_(NDArray a, const KaimingOptions& options = {}, Generator* generator = nullptr);

/// Makes the rows, or the columns if there are fewer of them, orthogonal to each other and of length gain.
/// They come from the Q factor of a random normal matrix, so all directions are equally likely. Dimensions
/// after the first count as columns. On another instruction set the last digits may differ. Source: Saxe et
/// al., 2013; Mezzadri, 2007, for the signs.
NDArray orthogonal_(NDArray a, double gain = 1, Generator* generator = nullptr);
/// Sets a matrix to ones on the diagonal and zeros elsewhere.
NDArray eye_(NDArray a);
/// Sets the weight of a convolution, of 3 to 5 dimensions, to the identity: in each of `groups` groups, as
/// many channels as possible are passed through. `groups` must divide the number of output channels.
NDArray dirac_(NDArray a, IntArg groups = 1);
/// In each column of a matrix, sets randomly chosen elements to 0: the fraction `sparsity` of them, rounded
/// up to whole elements. The other elements are normal with mean 0 and that standard deviation.
NDArray sparse_(NDArray a, double sparsity, double stddev = 0.01, Generator* generator = nullptr);
/// Sets the weight of a transposed convolution, of 4 dimensions, so that it interpolates bilinearly. In every
/// channel the last two dimensions are the outer product of two symmetric triangles. Source: Long et al.,
/// "Fully Convolutional Networks for Semantic Segmentation", 2015.
NDArray bilinear_(NDArray a);

/// Sets one array.
using Initializer = std::function<void(NDArray)>;

struct Rule {
  std::string pattern;  ///< an ECMAScript regular expression, searched in the name; "" matches every name
  Initializer initializer;
};
/// Sets each parameter of a module by the first rule that matches its name. Throws InvalidArgument if a
/// pattern does not parse, or if names match no rule; it lists all these names. Nothing is set in that case.
void mixed(const Module& module, const std::vector<Rule>& rules);

}  // namespace init
}  // namespace mx::nn
