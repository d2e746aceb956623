#include "tests/cuda/fused/expressions.h"

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <string>

#include "engine/base/error.h"
#include "operators/kernels/binary.h"
#include "operators/kernels/unary.h"

namespace mx::test {
namespace {

using Random = std::mt19937_64;

std::vector<std::string> operator_names() {
  std::vector<std::string> names = {"where", "cast"};
  for (int i = 1; i < kernels::kUnaryOps; ++i)
    names.emplace_back(kernels::to_string(static_cast<kernels::UnaryOp>(i)));
  for (int i = 0; i < kernels::kBinaryOps; ++i)
    names.emplace_back(kernels::to_string(static_cast<kernels::BinaryOp>(i)));
  return names;
}

/// A value of the wanted type: one that exists, or one that is converted.
FusedBuilder::Value of_type(FusedBuilder& b, const std::vector<FusedBuilder::Value>& values, DType type,
                            Random& random) {
  for (int attempt = 0; attempt < 4; ++attempt) {
    const auto value = values[random() % values.size()];
    if (b.type(value) == type) return value;
  }
  if (random() % 3 == 0) return b.number(static_cast<int>(random() % 5), type);
  return b.cast(values[random() % values.size()], type);
}

template <class T>
T random_element(Random& random) {
  if constexpr (std::is_same_v<T, bool>) {
    return random() % 2 != 0;
  } else if constexpr (std::is_integral_v<T>) {
    switch (random() % 4) {
      case 0:
        return std::numeric_limits<T>::min();
      case 1:
        return std::numeric_limits<T>::max();
      case 2:
        return static_cast<T>(random());
      default:
        return static_cast<T>(static_cast<int64_t>(random() % 9) - 4);
    }
  } else {
    constexpr double kSpecial[] = {0.0,    -0.0,  1.0,   -1.0,     0.5,       1e-310,
                                   -1e-40, 70000, -1e30, INFINITY, -INFINITY, NAN};
    if (random() % 4 == 0) return T(static_cast<float>(kSpecial[random() % std::size(kSpecial)]));
    std::normal_distribution<double> normal(0, random() % 2 == 0 ? 1 : 30);
    if constexpr (std::is_same_v<T, double>) {
      return normal(random);
    } else {
      return T(static_cast<float>(normal(random)));
    }
  }
}

NDArray random_array(const Shape& shape, DType type, Random& random) {
  NDArray made = empty(shape, type);
  visit(type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* const data = made.mutable_data<T>();
    for (int64_t i = 0; i < made.numel(); ++i) data[i] = random_element<T>(random);
  });
  return made;
}

}  // namespace

Fused random_expression(uint64_t seed, int steps) {
  static const std::vector<std::string> names = operator_names();
  Random random(seed);
  std::vector<DType> types;
  for (uint64_t i = 0; i < 3 + seed % 3; ++i) types.push_back(kAllDTypes[random() % std::size(kAllDTypes)]);
  FusedBuilder b(types);
  std::vector<FusedBuilder::Value> values;
  for (size_t i = 0; i < types.size(); ++i) values.push_back(b.input(i));
  size_t next = static_cast<size_t>(seed) * static_cast<size_t>(steps);
  for (int made = 0; made < steps;) {
    const std::string& name = names[next++ % names.size()];
    ++made;
    // A type that the operator refuses is tried again with another one.
    for (int attempt = 0; attempt < 30; ++attempt) {
      const DType type = kAllDTypes[random() % std::size(kAllDTypes)];
      try {
        if (name == "cast") {
          values.push_back(b.cast(values[random() % values.size()], type));
        } else if (name == "where") {
          values.push_back(b.op(name, {of_type(b, values, bool_, random), of_type(b, values, type, random),
                                       of_type(b, values, type, random)}));
        } else if (attempt % 2 == 0) {
          values.push_back(b.op(name, {of_type(b, values, type, random)}));
        } else {
          values.push_back(b.op(name, {of_type(b, values, type, random), of_type(b, values, type, random)}));
        }
        break;
      } catch (const InvalidArgument&) {
      }
    }
  }
  // Every value since the inputs goes into the result, most of them through a choice that keeps their bits.
  FusedBuilder::Value result = values.back();
  for (size_t i = types.size(); i + 1 < values.size(); ++i)
    result = b.op("where", {of_type(b, {values.begin(), values.begin() + static_cast<int64_t>(types.size())},
                                    bool_, random),
                            b.cast(values[i], b.type(result)), result});
  // So that all of it depends on an input.
  return b.build(
      b.op("where", {b.cast(b.input(0), bool_), result, b.cast(b.input(types.size() - 1), b.type(result))}));
}

std::vector<NDArray> random_inputs(const Fused& expression, uint64_t seed, bool flat) {
  Random random(seed);
  constexpr int64_t kRows = 37, kColumns = 21;
  std::vector<NDArray> inputs;
  for (size_t i = 0; i < expression.inputs(); ++i) {
    const DType type = expression.input_type(i);
    const uint64_t kind = flat || i == 0 ? 0 : random() % 6;
    switch (kind) {
      case 1:
        inputs.push_back(random_array({kColumns}, type, random));
        break;
      case 2:
        inputs.push_back(random_array({kRows, 1}, type, random));
        break;
      case 3:
        inputs.push_back(random_array({}, type, random));
        break;
      case 4:
        inputs.push_back(random_array({kColumns, kRows}, type, random).transpose());
        break;
      case 5:
        inputs.push_back(random_array({kRows, 2 * kColumns}, type, random).slice(1, {{}, {}, 2}));
        break;
      default:
        inputs.push_back(random_array({kRows, kColumns}, type, random));
    }
  }
  return inputs;
}

std::string compile_on_host(const std::string& source, int) {
  char folder[] = "/tmp/mx_fused_XXXXXX";
  if (::mkdtemp(folder) == nullptr)
    throw DeviceError("[compile_on_host] expected a folder for temporary files");
  const std::string base = folder;
  std::ofstream(base + "/fused.cc") << source;
  const std::string command = std::string(MX_HOST_COMPILER) +
                              " -std=c++17 -O1 -ffp-contract=off -fno-builtin -w -fPIC -shared -o " + base +
                              "/fused.so " + base + "/fused.cc > " + base + "/log 2>&1";
  const bool compiled = std::system(command.c_str()) == 0;
  const auto content = [&](const char* name) {
    std::ifstream in(base + name, std::ios::binary);
    return std::string((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  };
  const std::string result = content(compiled ? "/fused.so" : "/log");
  for (const char* name : {"/fused.cc", "/fused.so", "/log"}) std::remove((base + name).c_str());
  ::rmdir(folder);
  if (!compiled) throw DeviceError("[compile_on_host] expected a text that compiles, got:\n" + result);
  return result;
}

}  // namespace mx::test
