#include "operators/fused_text.h"

#include <cstdio>

#include "engine/base/check.h"
#include "operators/formulas.h"

namespace mx::detail {

namespace {

using Kind = FusedStep::Kind;
using kernels::BinaryOp;
using kernels::UnaryOp;

const char* element_type(DType type) {
  switch (type) {
    case DType::f32:
      return "float";
    case DType::f64:
      return "double";
    case DType::f16:
      return "half_t";
    case DType::bf16:
      return "bfloat_t";
    case DType::i8:
      return "int8_t";
    case DType::u8:
      return "uint8_t";
    case DType::i32:
      return "int32_t";
    case DType::i64:
      return "int64_t";
    case DType::bool_:
      break;
  }
  return "bool_t";
}

// The type of a computation on elements of a type. `real`: the operation has no formula for integers.
const char* computing_type(DType type, bool real) {
  if (type == DType::f64) return "double";
  return is_floating(type) || real ? "float" : "int64_t";
}

std::string hexadecimal(uint64_t bits) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llxul", static_cast<unsigned long long>(bits));
  return text;
}

std::string number_text(const FusedStep& step) {
  const std::string bits = hexadecimal(step.bits);
  switch (step.type) {
    case DType::f32:
      return concat("std::bit_cast<float>(static_cast<uint32_t>(", bits, "))");
    case DType::f64:
      return concat("std::bit_cast<double>(", bits, ")");
    case DType::f16:
    case DType::bf16:
      return concat(element_type(step.type), "{static_cast<uint16_t>(", bits, ")}");
    case DType::bool_:
      return concat("bool_t{static_cast<uint8_t>(", bits, ")}");
    default:
      return concat("static_cast<", element_type(step.type), ">(", bits, ")");
  }
}

std::string step_text(const FusedProgram& program, const FusedStep& step) {
  const auto type_of = [&](uint32_t operand) { return program.steps[operand].type; };
  const auto narrowed = [&](const std::string& value) {
    return concat("Narrow<", element_type(step.type), ">::from(pinned(", value, "))");
  };
  const auto widened = [&](const char* computing, uint32_t operand) {
    return concat("widened<", computing, ">(v", operand, ")");
  };
  switch (step.kind) {
    case Kind::input:
      return concat("x", step.a);
    case Kind::number:
      return number_text(step);
    case Kind::unary: {
      auto op = static_cast<UnaryOp>(step.op);
      // The complement of a bool is the other one.
      if (op == UnaryOp::bitwise_not && type_of(step.a) == DType::bool_) op = UnaryOp::logical_not;
      const char* const computing = computing_type(type_of(step.a), !formulas::has_unary<int64_t>(op));
      return narrowed(
          concat("formulas::unary<UnaryOp::", to_string(op), ">(", widened(computing, step.a), ")"));
    }
    case Kind::binary: {
      const auto op = static_cast<BinaryOp>(step.op);
      const DType type = type_of(step.a);
      const char* const computing = computing_type(type, !formulas::has_binary<int64_t>(op));
      return narrowed(concat("formulas::binary<BinaryOp::", to_string(op), ">(", widened(computing, step.a),
                             ", ", widened(computing, step.b), ", ", 8 * size_of(type), ")"));
    }
    case Kind::where:
      return concat("number_of(v", step.a, ") != 0 ? v", step.b, " : v", step.c);
    case Kind::cast:
      break;
  }
  return concat("converted<", element_type(step.type), ">(v", step.a, ")");
}

// The places where the operands of the text come from: "x0" is the first of the used inputs.
std::string loop_text(const FusedProgram& program) {
  std::string declared, four, arguments, strided;
  for (size_t k = 0; k < program.used.size(); ++k) {
    const char* const type = element_type(program.inputs[program.used[k]]);
    declared += concat("      ", type, " x", k, "[4];\n", "      load_four(args.in[", k,
                       "], args.aligned, i, count, x", k, ");\n");
    four += concat(k == 0 ? "" : ", ", "x", k, "[j]");
    strided +=
        concat(k == 0 ? "" : ", ", "static_cast<const ", type, "*>(args.in[", k, "].data)[at[", k, "]]");
  }
  const char* const out = element_type(program.steps[program.result].type);
  return concat(
      "struct Args {\n  Operand out;\n  Operand in[", kMaxFusedInputs,
      "];\n  int64_t shape[12];\n  int64_t numel;\n  int32_t rank;\n  bool flat;\n  bool aligned;\n};\n\n"
      "__device__ inline void run(const Args& args, int64_t thread, int64_t threads) {\n"
      "  if (args.flat) {\n"
      "    for (int64_t i = thread * 4; i < args.numel; i += threads * 4) {\n"
      "      const int64_t count = args.numel - i < 4 ? args.numel - i : 4;\n",
      declared, "      ", out, " y[4];\n      for (int j = 0; j < 4; ++j) y[j] = element(", four,
      ");\n      store_four(args.out, args.aligned, i, count, y);\n    }\n    return;\n  }\n"
      "  for (int64_t i = thread; i < args.numel; i += threads) {\n"
      "    int64_t rest = i;\n    int64_t to = 0;\n    int64_t at[",
      kMaxFusedInputs,
      "] = {};\n"
      "    for (int d = args.rank - 1; d >= 0; --d) {\n"
      "      const int64_t index = rest % args.shape[d];\n      rest /= args.shape[d];\n"
      "      to += index * args.out.strides[d];\n      for (int k = 0; k < ",
      program.used.size(), "; ++k) at[k] += index * args.in[k].strides[d];\n    }\n    static_cast<", out,
      "*>(args.out.data)[to] = element(", strided,
      ");\n  }\n}\n\n"
      "#if defined(__CUDACC_RTC__)\n"
      "extern \"C\" __global__ void mx_fused(const __grid_constant__ Args args) {\n"
      "  run(args, static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x,\n"
      "      static_cast<int64_t>(gridDim.x) * blockDim.x);\n}\n#else\n"
      "extern \"C\" void mx_fused(const Args* args, int64_t thread, int64_t threads) {\n"
      "  run(*args, thread, threads);\n}\n"
      "extern \"C\" const uint64_t mx_fused_argument_bytes = sizeof(Args);\n#endif\n");
}

}  // namespace

std::vector<uint32_t> needed_steps(const FusedProgram& program) {
  std::vector<bool> needed(program.steps.size());
  needed[program.result] = true;
  std::vector<uint32_t> list;
  for (uint32_t i = program.result + 1; i-- > 0;) {
    if (!needed[i]) continue;
    list.insert(list.begin(), i);
    const FusedStep& step = program.steps[i];
    if (step.kind == Kind::input || step.kind == Kind::number) continue;
    needed[step.a] = true;
    if (step.kind == Kind::binary || step.kind == Kind::where) needed[step.b] = true;
    if (step.kind == Kind::where) needed[step.c] = true;
  }
  return list;
}

std::string fused_source(const FusedProgram& program) {
  std::string parameters, body;
  for (size_t k = 0; k < program.used.size(); ++k)
    parameters += concat(k == 0 ? "" : ", ", element_type(program.inputs[program.used[k]]), " x", k);
  for (const uint32_t i : needed_steps(program)) {
    FusedStep step = program.steps[i];
    if (step.kind == Kind::input) {  // the place among the used ones
      uint32_t place = 0;
      while (program.used[place] != step.a) ++place;
      step.a = place;
    }
    body += concat("  const ", element_type(step.type), " v", i, " = ", step_text(program, step), ";\n");
  }
  return concat(kFusedPrelude, kFusedEnums, kFusedFormulas, kFusedKernel, "\n__device__ inline ",
                element_type(program.steps[program.result].type), " element(", parameters, ") {\n", body,
                "  return v", program.result, ";\n}\n\n", loop_text(program));
}

}  // namespace mx::detail
