// Fused: an expression of elementwise operations that a GPU computes in one kernel.
//
//   FusedBuilder b({f32, f32});
//   const auto sum = b.op("add", {b.input(0), b.input(1)});
//   const Fused f = b.build(b.op("tanh", {sum}));
//   NDArray y = f({x, bias});                        // tanh(x + bias), broadcast as the operators do
//
// The result has the bits of the operators called one after another on the same device: each operation
// computes in the type that the operator computes in (f32 for f16 and bf16, int64_t for integers), and its
// result is rounded to its own type before the next operation reads it. Operands of one operation must have
// the same type; cast() converts.
//
// On a GPU the kernel is compiled while the program runs, by NVRTC, when the first call is issued: below 100
// ms, or 1 ms if it is in the folder MX_KERNEL_CACHE ($XDG_CACHE_HOME/mxrun/kernels or ~/.cache/mxrun/kernels
// if the variable is not set; no folder if it is empty). On other devices, inside an Autocast scope and if a
// gradient is recorded, the operators are called one after another.
//
// Thread-safety: a Fused does not change and may be called from any thread; a builder belongs to one thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include "ndarray/ndarray.h"
#include "ndarray/scalar.h"

namespace mx {

namespace detail {
struct FusedProgram;
}  // namespace detail

class Fused {
 public:
  size_t inputs() const;
  DType input_type(size_t i) const;
  DType result_type() const;
  /// The source text of the kernel.
  const std::string& source() const;

  /// Throws InvalidArgument for another number of inputs, for an input of another type or device, and for
  /// shapes that do not broadcast. If the kernel cannot be compiled or NVRTC is missing, waiting for the
  /// result throws DeviceError.
  NDArray operator()(std::span<const NDArray> inputs,
                     std::source_location where = std::source_location::current()) const;
  NDArray operator()(std::initializer_list<NDArray> inputs,
                     std::source_location where = std::source_location::current()) const;
  /// The same, by calling the operators one after another.
  NDArray unfused(std::span<const NDArray> inputs) const;

 private:
  friend class FusedBuilder;
  explicit Fused(std::shared_ptr<const detail::FusedProgram> program) : program_(std::move(program)) {}

  std::shared_ptr<const detail::FusedProgram> program_;
};

class FusedBuilder {
 public:
  /// A result of the expression so far. Belongs to the builder that has made it.
  class Value {
    friend class FusedBuilder;
    const FusedBuilder* builder = nullptr;
    uint32_t step = 0;
  };

  /// The types of the inputs, at most 16. Throws InvalidArgument.
  explicit FusedBuilder(std::vector<DType> inputs);
  ~FusedBuilder();
  FusedBuilder(const FusedBuilder&) = delete;
  FusedBuilder& operator=(const FusedBuilder&) = delete;

  /// Throw InvalidArgument for an input that does not exist, a value of another builder, an operator that is
  /// not elementwise or has no formula, and operands of different or wrong types.
  Value input(size_t i);
  /// A number as an element of a type, converted as full() does. Throws InvalidArgument if it does not fit.
  Value number(const Scalar& value, DType type);
  /// An operator of one or two operands, or "where" of three, by its name: "add", "tanh", "less", ...
  Value op(const std::string& name, std::initializer_list<Value> operands);
  Value cast(Value x, DType type);

  DType type(Value x) const;
  /// Throws InvalidArgument if the result depends on no input. The builder may be used further.
  Fused build(Value result) const;

 private:
  uint32_t check(Value x, const char* call) const;
  Value added() const;

  std::unique_ptr<detail::FusedProgram> program_;
};

}  // namespace mx
