// Initialisers that push operations on arrays, and mixed(). Those that compute on the calling thread are in
// init_host.cc.
#include "nn/init.h"

#include <cmath>
#include <regex>

#include "engine/base/check.h"
#include "ndarray/grad_mode.h"
#include "nn/module.h"

namespace mx::nn::init {
namespace {

void check_floating(const NDArray& a, const char* op) {
  MX_CHECK(is_floating(a.dtype()), InvalidArgument, "[", op,
           "] expected an array of a floating-point type, got ", a.dtype());
}

NDArray set_uniform(NDArray a, double low, double high, Generator* generator, const char* op) {
  check_floating(a, op);
  MX_CHECK(std::isfinite(low) && std::isfinite(high) && low <= high, InvalidArgument, "[", op,
           "] expected finite limits, low <= high, got ", low, " and ", high);
  if (low == high) return constant_(std::move(a), low);
  const NoGrad pause;
  if (a.numel() > 0)
    a.copy_from(generator_or_default(generator).uniform(low, high, a.shape(), accumulation_type(a.dtype())));
  return a;
}

NDArray set_normal(NDArray a, double mean, double deviation, Generator* generator, const char* op) {
  check_floating(a, op);
  MX_CHECK(std::isfinite(mean) && std::isfinite(deviation) && deviation >= 0, InvalidArgument, "[", op,
           "] expected a finite mean and a deviation of 0 or more, got ", mean, " and ", deviation);
  const NoGrad pause;
  if (a.numel() > 0)
    a.copy_from(
        generator_or_default(generator).normal(mean, deviation, a.shape(), accumulation_type(a.dtype())));
  return a;
}

double xavier_deviation(const NDArray& a, double gain) {
  const Fans fans = fans_of(a.shape());
  return gain * std::sqrt(2.0 / static_cast<double>(fans.in + fans.out));
}

double kaiming_deviation(const NDArray& a, const KaimingOptions& options) {
  const Fans fans = fans_of(a.shape());
  const std::string& mode = options.mode;
  MX_CHECK(mode == "fan_in" || mode == "fan_out" || mode == "fan_avg", InvalidArgument,
           "[kaiming] expected the mode \"fan_in\", \"fan_out\" or \"fan_avg\", got \"", mode, '"');
  const double in = static_cast<double>(fans.in), out = static_cast<double>(fans.out);
  const double fan = mode == "fan_in" ? in : mode == "fan_out" ? out : (in + out) / 2;
  return calculate_gain(options.nonlinearity, options.a) / std::sqrt(fan);
}

}  // namespace

NDArray zeros_(NDArray a) { return constant_(std::move(a), 0); }
NDArray ones_(NDArray a) { return constant_(std::move(a), 1); }

NDArray constant_(NDArray a, double value) {
  const NoGrad pause;
  a.fill_(value);
  return a;
}

NDArray uniform_(NDArray a, double low, double high, Generator* generator) {
  return set_uniform(std::move(a), low, high, generator, "uniform_");
}

NDArray normal_(NDArray a, double mean, double deviation, Generator* generator) {
  return set_normal(std::move(a), mean, deviation, generator, "normal_");
}

Fans fans_of(const Shape& shape) {
  MX_CHECK(shape.rank() >= 2, InvalidArgument,
           "[fans_of] expected a weight of at least two dimensions, got shape ", shape);
  int64_t field = 1;
  for (int d = 2; d < shape.rank(); ++d) field *= shape[d];
  return {shape[1] * field, shape[0] * field};
}

double calculate_gain(const std::string& nonlinearity, double parameter) {
  for (const char* name : {"linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
                           "conv_transpose3d", "sigmoid"})
    if (nonlinearity == name) return 1;
  if (nonlinearity == "tanh") return 5.0 / 3;
  if (nonlinearity == "relu") return std::sqrt(2.0);
  if (nonlinearity == "leaky_relu") return std::sqrt(2 / (1 + parameter * parameter));
  MX_CHECK(nonlinearity == "selu", InvalidArgument,
           "[calculate_gain] expected linear, conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d, "
           "conv_transpose3d, sigmoid, tanh, relu, leaky_relu or selu, got \"",
           nonlinearity, '"');
  return 0.75;
}

NDArray xavier_uniform_(NDArray a, double gain, Generator* generator) {
  const double deviation = xavier_deviation(a, gain);
  if (a.numel() == 0) return a;
  const double bound = std::sqrt(3.0) * deviation;
  return set_uniform(std::move(a), -bound, bound, generator, "xavier_uniform_");
}

NDArray xavier_normal_(NDArray a, double gain, Generator* generator) {
  const double deviation = xavier_deviation(a, gain);
  if (a.numel() == 0) return a;
  return set_normal(std::move(a), 0, deviation, generator, "xavier_normal_");
}

NDArray kaiming_uniform_(NDArray a, const KaimingOptions& options, Generator* generator) {
  const double deviation = kaiming_deviation(a, options);
  if (a.numel() == 0) return a;
  const double bound = std::sqrt(3.0) * deviation;
  return set_uniform(std::move(a), -bound, bound, generator, "kaiming_uniform_");
}

NDArray kaiming_normal_(NDArray a, const KaimingOptions& options, Generator* generator) {
  const double deviation = kaiming_deviation(a, options);
  if (a.numel() == 0) return a;
  return set_normal(std::move(a), 0, deviation, generator, "kaiming_normal_");
}

void mixed(const Module& module, const std::vector<Rule>& rules) {
  std::vector<std::regex> patterns;
  for (const Rule& rule : rules) {
    MX_CHECK(rule.initializer, InvalidArgument, "[mixed] expected an initializer for the pattern \"",
             rule.pattern, "\", got an empty function");
    try {
      patterns.emplace_back(rule.pattern);
    } catch (const std::regex_error& e) {
      throw InvalidArgument("[mixed] expected a regular expression, got \"" + rule.pattern +
                            "\": " + e.what());
    }
  }
  const Parameters parameters = module.parameters();
  std::vector<size_t> chosen;
  std::string without;
  for (const auto& [name, parameter] : parameters) {
    size_t i = 0;
    while (i < patterns.size() && !std::regex_search(name, patterns[i])) ++i;
    chosen.push_back(i);
    if (i == patterns.size()) without += (without.empty() ? "" : ", ") + name;
  }
  MX_CHECK(without.empty(), InvalidArgument, "[mixed] expected a rule for every parameter, got none for ",
           without);
  for (size_t i = 0; i < parameters.size(); ++i) rules[chosen[i]].initializer(parameters[i]);
}

}  // namespace mx::nn::init
