#include "operators/fused.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "engine/base/check.h"
#include "ndarray/attrs.h"
#include "ndarray/detail/place.h"
#include "ndarray/grad_mode.h"
#include "ndarray/launch.h"
#include "operators/autocast.h"
#include "operators/cast.h"
#include "operators/cuda/fused.h"
#include "operators/fused_attrs.h"
#include "operators/fused_text.h"
#include "operators/kernels/binary.h"
#include "operators/kernels/unary.h"
#include "operators/operator.h"

namespace mx {

namespace {

using detail::FusedProgram;
using detail::FusedStep;
using Kind = FusedStep::Kind;

struct Named {
  Kind kind;
  uint8_t op;
};

// Returns the operation with that name; empty if it cannot be part of an expression.
std::optional<Named> operation(const std::string& name) {
  for (int i = 0; i < kernels::kUnaryOps; ++i)
    if (name == kernels::to_string(static_cast<kernels::UnaryOp>(i)) && i != 0)
      return Named{Kind::unary, static_cast<uint8_t>(i)};
  for (int i = 0; i < kernels::kBinaryOps; ++i)
    if (name == kernels::to_string(static_cast<kernels::BinaryOp>(i)))
      return Named{Kind::binary, static_cast<uint8_t>(i)};
  if (name == "where") return Named{Kind::where, 0};
  return std::nullopt;
}

const char* name_of(const FusedStep& step) {
  switch (step.kind) {
    case Kind::unary:
      return kernels::to_string(static_cast<kernels::UnaryOp>(step.op));
    case Kind::binary:
      return kernels::to_string(static_cast<kernels::BinaryOp>(step.op));
    default:
      return "where";
  }
}

// The element of a step that is a number, as a scalar: to_type(scalar) has the step's bits again.
Scalar scalar_of(const FusedStep& step) {
  return visit(step.type, [&](auto tag) {
    typename decltype(tag)::type value{};
    std::memcpy(&value, &step.bits, sizeof value);
    return Scalar(value);
  });
}

Shape common_shape(std::span<const NDArray> inputs, const FusedProgram& program) {
  Shape shape;
  for (const uint32_t i : program.used) shape = broadcast_shapes(shape, inputs[i].shape(), "fused");
  return shape;
}

const Kernel& fused_kernel() {
  static const Kernel kernel = {"fused", nullptr, cuda::fused_kernel()};
  return kernel;
}

}  // namespace

size_t Fused::inputs() const { return program_->inputs.size(); }

DType Fused::input_type(size_t i) const {
  MX_CHECK(i < inputs(), InvalidArgument, "[fused] expected the number of an input below ", inputs(),
           ", got ", i);
  return program_->inputs[i];
}

DType Fused::result_type() const { return program_->steps[program_->result].type; }
const std::string& Fused::source() const { return program_->source; }

NDArray Fused::operator()(std::initializer_list<NDArray> inputs, std::source_location where) const {
  return (*this)(std::span(inputs.begin(), inputs.size()), where);
}

NDArray Fused::operator()(std::span<const NDArray> given, std::source_location where) const try {
  const FusedProgram& program = *program_;
  MX_CHECK(given.size() == program.inputs.size(), InvalidArgument, "[fused] expected ", program.inputs.size(),
           " inputs, got ", given.size());
  std::vector<detail::ArrayImpl*> all;
  for (size_t i = 0; i < given.size(); ++i) {
    MX_CHECK(given[i].defined(), InvalidArgument, "[fused] expected an array as input ", i,
             ", got an empty handle");
    MX_CHECK(given[i].dtype() == program.inputs[i], InvalidArgument, "[fused] expected elements of ",
             program.inputs[i], " in input ", i, ", got ", given[i].dtype());
    all.push_back(&given[i].impl());
  }
  const Context context = common_context("fused", all);
  const Shape shape = common_shape(given, program);
  const bool recorded = grad_enabled() && std::any_of(given.begin(), given.end(),
                                                      [](const NDArray& x) { return x.requires_grad(); });
  if (context.kind != DeviceKind::gpu || fused_kernel().cuda == nullptr || recorded ||
      autocast_dtype().has_value())
    return unfused(given);
  NDArray out = empty(shape, result_type(), context);
  std::vector<detail::ArrayImpl*> inputs;
  for (const uint32_t i : program.used) inputs.push_back(all[i]);
  detail::ArrayImpl* const outputs[] = {&out.impl()};
  const Attrs attrs = detail::FusedAttrs{program_};
  launch({.kernel = &fused_kernel(),
          .attrs = &attrs,
          .inputs = inputs,
          .outputs = outputs,
          .fresh_outputs = 1,
          .work = shape.numel(),
          .context = &context,
          .where = where});
  return out;
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray Fused::unfused(std::span<const NDArray> given) const {
  const FusedProgram& program = *program_;
  MX_CHECK(given.size() == program.inputs.size(), InvalidArgument, "[fused] expected ", program.inputs.size(),
           " inputs, got ", given.size());
  const std::vector<uint32_t> steps = detail::needed_steps(program);
  std::vector<uint32_t> last_use(program.steps.size(), program.result);  // frees what is no longer needed
  for (const uint32_t i : steps) {
    const FusedStep& step = program.steps[i];
    if (step.kind == Kind::input || step.kind == Kind::number) continue;
    last_use[step.a] = i;
    if (step.kind == Kind::binary || step.kind == Kind::where) last_use[step.b] = i;
    if (step.kind == Kind::where) last_use[step.c] = i;
  }
  std::vector<NDArray> values(program.steps.size());
  const Context context = given[program.used[0]].context();
  for (const uint32_t i : steps) {
    const FusedStep& step = program.steps[i];
    switch (step.kind) {
      case Kind::input:
        values[i] = given[step.a];
        continue;
      case Kind::number:
        values[i] = full({}, scalar_of(step), step.type, context);
        continue;
      case Kind::cast:
        values[i] = cast(values[step.a], step.type);
        break;
      case Kind::unary:
        values[i] = call(*find_operator(name_of(step)), {}, values[step.a]);
        break;
      case Kind::binary:
        values[i] = call(*find_operator(name_of(step)), {}, values[step.a], values[step.b]);
        break;
      case Kind::where:
        values[i] = call(*find_operator("where"), {}, values[step.a], values[step.b], values[step.c]);
        break;
    }
    for (const uint32_t operand : {step.a, step.b, step.c})
      if (operand != i && last_use[operand] == i) values[operand] = NDArray();
  }
  return values[program.result];
}

FusedBuilder::FusedBuilder(std::vector<DType> inputs) : program_(std::make_unique<FusedProgram>()) {
  MX_CHECK(!inputs.empty() && inputs.size() <= detail::kMaxFusedInputs, InvalidArgument,
           "[fused] expected 1 to ", detail::kMaxFusedInputs, " inputs, got ", inputs.size());
  program_->inputs = std::move(inputs);
}

FusedBuilder::~FusedBuilder() = default;

uint32_t FusedBuilder::check(Value x, const char* call) const {
  MX_CHECK(x.builder == this, InvalidArgument, "[", call, "] expected a value of this FusedBuilder, got ",
           x.builder == nullptr ? "an empty one" : "one of another builder");
  return x.step;
}

FusedBuilder::Value FusedBuilder::added() const {
  Value value;
  value.builder = this;
  value.step = static_cast<uint32_t>(program_->steps.size() - 1);
  return value;
}

FusedBuilder::Value FusedBuilder::input(size_t i) {
  MX_CHECK(i < program_->inputs.size(), InvalidArgument, "[fused] expected the number of an input below ",
           program_->inputs.size(), ", got ", i);
  program_->steps.push_back(
      {.kind = Kind::input, .type = program_->inputs[i], .a = static_cast<uint32_t>(i)});
  return added();
}

FusedBuilder::Value FusedBuilder::number(const Scalar& value, DType type) {
  MX_CHECK(fits(value, type), InvalidArgument, "[fused] expected a number that fits ", type, ", got ", value);
  FusedStep step{.kind = Kind::number, .type = type};
  visit(type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T element{};
    if constexpr (sizeof(T) == 2) {
      element = T(value.to<float>());
    } else {
      element = value.to<T>();
    }
    std::memcpy(&step.bits, &element, sizeof element);
  });
  program_->steps.push_back(step);
  return added();
}

FusedBuilder::Value FusedBuilder::op(const std::string& name, std::initializer_list<Value> operands) {
  const std::optional<Named> named = operation(name);
  const Operator* const record = find_operator(name);
  MX_CHECK(named.has_value() && record != nullptr, InvalidArgument,
           "[fused] expected the name of an elementwise operator of one or two arrays, or where, got '", name,
           "'");
  const size_t count = named->kind == Kind::unary ? 1 : named->kind == Kind::binary ? 2 : 3;
  MX_CHECK(operands.size() == count, InvalidArgument, "[fused] expected ", count, " operands of ", name,
           ", got ", operands.size());
  FusedStep step{.kind = named->kind, .op = named->op};
  uint32_t* const places[] = {&step.a, &step.b, &step.c};
  std::vector<NDArray> examples;
  for (size_t i = 0; i < count; ++i) {
    *places[i] = check(operands.begin()[i], "fused");
    examples.push_back(empty({0}, program_->steps[*places[i]].type));
  }
  const auto type_of = [&](size_t i) { return examples[i].dtype(); };
  if (count == 3) {
    MX_CHECK(type_of(0) == bool_, InvalidArgument, "[fused] expected a condition of bool, got ", type_of(0));
  }
  if (count > 1) {
    MX_CHECK(type_of(count - 1) == type_of(count - 2), InvalidArgument, "[fused] expected operands of ", name,
             " of one type, got ", type_of(count - 2), " and ", type_of(count - 1), "; cast() converts");
  }
  std::vector<detail::ArrayImpl*> arrays;
  for (const NDArray& example : examples) arrays.push_back(&example.impl());
  const Attrs none{};
  InferContext inferred(*record, arrays, none);
  record->infer(inferred);
  step.type = inferred.output_dtype(0);
  program_->steps.push_back(step);
  return added();
}

FusedBuilder::Value FusedBuilder::cast(Value x, DType type) {
  const uint32_t operand = check(x, "fused");
  program_->steps.push_back({.kind = Kind::cast, .type = type, .a = operand});
  return added();
}

DType FusedBuilder::type(Value x) const { return program_->steps[check(x, "fused")].type; }

Fused FusedBuilder::build(Value result) const {
  auto program = std::make_shared<FusedProgram>(*program_);
  program->result = check(result, "fused");
  for (const uint32_t i : detail::needed_steps(*program)) {
    const FusedStep& step = program->steps[i];
    if (step.kind == Kind::input) program->used.push_back(step.a);
  }
  std::sort(program->used.begin(), program->used.end());
  program->used.erase(std::unique(program->used.begin(), program->used.end()), program->used.end());
  MX_CHECK(!program->used.empty(), InvalidArgument,
           "[fused] expected a result that depends on an input, got one of numbers only");
  program->source = detail::fused_source(*program);
  return Fused(std::move(program));
}

}  // namespace mx
