// The source text of a fused kernel (fused.h). Internal.
//
// The text includes no header. NVRTC compiles it for a GPU; g++ compiles it for tests. It has the formulas of
// operators/formulas.h, word for word: CMake puts the header's text into this library. The kernel is
//
//   extern "C" __global__ void mx_fused(const FusedKernelArgs)                        with NVRTC
//   extern "C" void mx_fused(const FusedKernelArgs*, int64_t thread, int64_t threads)   with g++
//
// Thread-safety: no state.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "ndarray/dtype.h"
#include "ndarray/shape.h"

namespace mx::detail {

/// One operation of an expression. Steps come after those that they use.
struct FusedStep {
  enum class Kind : uint8_t { input, number, unary, binary, where, cast };
  Kind kind = Kind::input;
  uint8_t op = 0;  ///< UnaryOp or BinaryOp
  DType type{};    ///< of the result
  uint32_t a = 0;  ///< the number of the input, or the steps of the operands: a, b, c
  uint32_t b = 0;
  uint32_t c = 0;
  uint64_t bits = 0;  ///< of a number: the bytes of an element
};

/// The kernel that a program's first launch has found, so that later ones need not search. Not copied.
struct FusedKernelSlot {
  FusedKernelSlot() = default;
  FusedKernelSlot(const FusedKernelSlot&) {}
  std::atomic<int> architecture{0};  ///< 0: none yet; set once, after `kernel`
  std::atomic<void*> kernel{nullptr};
};

struct FusedProgram {
  std::vector<DType> inputs;
  std::vector<FusedStep> steps;
  uint32_t result = 0;
  std::vector<uint32_t> used;  ///< the inputs on which the result depends, in ascending order
  std::string source;          ///< its operands are the used inputs, in this order
  mutable FusedKernelSlot kernel{};
};

/// Returns the steps that the result needs, in ascending order.
std::vector<uint32_t> needed_steps(const FusedProgram& program);
/// Precondition: `used` is set.
std::string fused_source(const FusedProgram& program);

inline constexpr size_t kMaxFusedInputs = 16;
static_assert(kMaxRank == 12, "the text has this number in Operand");

/// The arguments of the kernel. The text declares the same types.
struct FusedOperand {
  void* data;
  int64_t strides[kMaxRank];  ///< in elements; of `flat` loops the first is 0 or 1
};
struct FusedKernelArgs {
  FusedOperand out;
  FusedOperand in[kMaxFusedInputs];
  int64_t shape[kMaxRank];
  int64_t numel;
  int32_t rank;
  bool flat;     ///< every operand is in the order of the result, without gaps, or one element
  bool aligned;  ///< flat, and four elements of each operand may be accessed at once
};

extern const char* const kFusedPrelude;
extern const char* const kFusedEnums;
extern const char* const kFusedFormulas;
extern const char* const kFusedKernel;

}  // namespace mx::detail
