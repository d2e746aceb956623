#include "tests/engine/stream_order_rig.h"

#include <stdexcept>

namespace mx::test {

using detail::Access;
using detail::Failure;
using detail::Link;
using detail::Op;
using detail::Outcome;

int64_t value_of(int op, int var, const std::vector<int64_t>& inputs) {
  uint64_t hash = static_cast<uint64_t>(op) * 1000003 + static_cast<uint64_t>(var) + 17;
  for (const int64_t input : inputs) {
    hash = (hash ^ static_cast<uint64_t>(input)) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  return static_cast<int64_t>(hash);
}

std::vector<int64_t> inputs_of(const OpSpec& spec, const std::vector<int64_t>& cells) {
  std::vector<int64_t> inputs;
  for (const int var : spec.reads) inputs.push_back(cells[static_cast<size_t>(var)]);
  for (const int var : spec.updates) inputs.push_back(cells[static_cast<size_t>(var)]);
  return inputs;
}

namespace {

void write_outputs(int op, const OpSpec& spec, const std::vector<int64_t>& inputs,
                   std::vector<int64_t>& cells) {
  for (const int var : spec.writes) cells[static_cast<size_t>(var)] = value_of(op, var, inputs);
  for (const int var : spec.updates) cells[static_cast<size_t>(var)] = value_of(op, var, inputs);
}

const detail::OpType kType = {.run = nullptr, .destroy = nullptr, .async = false, .copy_bytes = 0};
const detail::OpType kTokenType = {.run = nullptr, .destroy = nullptr, .async = true, .copy_bytes = 0};

}  // namespace

Rig::Rig(int count, int streams) : order(*this, streams) {
  for (int id = 0; id < kFakeDevices; ++id) fake_device(id).reset();
  for (int i = 0; i < count; ++i) vars.push_back(var_pool.take(nullptr));
  cells.assign(static_cast<size_t>(count), 0);
}

Rig::~Rig() {
  for (detail::VarBlock* var : vars) {
    order.forget(var);
    if (var->failure != nullptr) detail::DependencyState<Rig>::set_failure(var, nullptr, false);
  }
}

int Rig::push(OpSpec spec) {
  const int index = static_cast<int>(specs_.size());
  specs_.push_back(std::move(spec));
  const OpSpec& kept = specs_.back();
  states_.push_back(State::waiting);
  if (free_ops_ == nullptr) free_ops_ = op_pool_.take_chain();
  Op* op = free_ops_;
  free_ops_ = op->next();
  op->type = kept.by_token ? &kTokenType : &kType;
  op->links = 0;
  op->flags = 0;
  op->epoch = 1;
  op->priority = 0;
  const auto add = [&](const std::vector<int>& list, Access access) {
    for (const int var : list) op->link(op->links++).set(vars.at(static_cast<size_t>(var)), access);
  };
  add(kept.reads, Access::read);
  add(kept.writes, Access::write);
  add(kept.updates, Access::update);
  names_.push_back("op" + std::to_string(index));
  op->cold().name = names_.back().c_str();
  op->cold().where = std::source_location::current();
  op->cold().bytes = 8;
  op->flags |= detail::kOpHasBytes;
  index_of(op) = index;
  dependency_.link(op);
  run_ready();
  return index;
}

void Rig::run_ready() {
  if (running_) return;
  running_ = true;
  while (!ready_.empty() || !host_ready_.empty()) {
    // An operation that was parked until its events completed starts without another call of
    // order.host_may_start().
    const bool may_start = !host_ready_.empty();
    auto& queue = may_start ? host_ready_ : ready_;
    Op* op = queue.front();
    queue.pop_front();
    const OpSpec& spec = specs_[static_cast<size_t>(index_of(op))];
    if (spec.context.is_cpu() && !may_start && !order.host_may_start(op)) {
      states_[static_cast<size_t>(index_of(op))] = State::parked;
      continue;
    }
    run(op);
  }
  running_ = false;
}

void Rig::run(Op* op) {
  const int index = index_of(op);
  const OpSpec& spec = specs_[static_cast<size_t>(index)];
  Failure* cause = detail::DependencyState<Rig>::cause_of(op);
  const bool skip =
      spec.context.is_cpu() ? (op->flags & detail::kOpSkip) != 0 : cause != nullptr && check_cause;
  if (skip) {
    states_[static_cast<size_t>(index)] = State::skipped;
    complete(op, Outcome::skipped, cause);
    return;
  }
  if (spec.context.is_cpu()) {
    const std::vector<int64_t> inputs = inputs_of(spec, cells);
    write_outputs(index, spec, inputs, cells);
    Failure* failure = nullptr;
    if (spec.fails_on_host) {
      failure = detail::failure_of(std::make_exception_ptr(std::runtime_error("host")), op->cold().name,
                                   op->cold().where);
    }
    states_[static_cast<size_t>(index)] = failure != nullptr ? State::failed : State::host_done;
    complete(op, failure != nullptr ? Outcome::failed : Outcome::done, failure);
    if (failure != nullptr) failure->release();
    return;
  }
  detail::StreamOrder::Issue issue;
  try {
    order.plan(op, spec.context, spec.lane, issue);
  } catch (...) {
    Failure* failure = detail::failure_of_current_exception(op->cold().name, op->cold().where);
    states_[static_cast<size_t>(index)] = State::failed;
    complete(op, Outcome::failed, failure);
    failure->release();
    return;
  }
  run_on_stream(op, spec, issue);
}

void Rig::run_on_stream(Op* op, const OpSpec& spec, detail::StreamOrder::Issue& issue) {
  const int index = index_of(op);
  streams_[index] = issue.id;
  detail::StreamOrder::begin(issue);
  std::exception_ptr error = issue.begin_error;
  if (error == nullptr) {
    auto inputs = std::make_shared<std::vector<int64_t>>();
    issue.stream->submit([this, &spec, inputs](KernelContext&) { *inputs = inputs_of(spec, cells); });
    issue.stream->submit([this, &spec, inputs, index](KernelContext&) {
      // The inputs must not have changed: no operation may overwrite an input of a running operation.
      const bool stable = *inputs == inputs_of(spec, cells);
      write_outputs(stable ? index : -index - 1, spec, *inputs, cells);
      if (spec.fails_on_device) throw std::runtime_error("device");
    });
    if (spec.fails_on_host) error = std::make_exception_ptr(std::runtime_error("host"));
  }
  detail::StreamOrder::end(issue);
  Failure* failure =
      error != nullptr ? detail::failure_of(error, op->cold().name, op->cold().where) : nullptr;
  order.issued(op, issue, failure);
  states_[static_cast<size_t>(index)] = failure != nullptr ? State::failed : State::issued;
  if (spec.by_token) {
    tokens_[index] = op;
    return;
  }
  complete(op, failure != nullptr ? Outcome::failed : Outcome::done, failure);
  if (failure != nullptr) failure->release();
}

void Rig::use_token(int index) {
  Op* op = tokens_.at(index);
  Failure* failure = order.take_early_failure(op);
  complete(op, failure != nullptr ? Outcome::failed : Outcome::done, failure);
  if (failure != nullptr) failure->release();
  run_ready();
}

void Rig::complete(Op* op, Outcome outcome, Failure* failure) {
  dependency_.complete(op, outcome, failure);
  op->next() = free_ops_;
  free_ops_ = op;
}

void Rig::host_may_start(Op* op) { host_ready_.push_back(op); }

void Rig::retired(uint16_t epoch, uint64_t bytes, Failure* failure, bool inherited) {
  if (epoch != 1 || bytes != 8) throw std::logic_error("not what was pushed");
  ++retired_count;
  if (failure != nullptr) ++(inherited ? inherited_count : failed_count);
}

void Rig::finish() {
  run_ready();
  while (order.poll() || !host_ready_.empty()) {
    run_ready();
    run_all_streams();
  }
  run_ready();
  if (order.outstanding()) finish();
}

std::string Rig::failure_of(int var) const {
  const Failure* failure = vars[static_cast<size_t>(var)]->failure;
  return failure == nullptr ? "" : failure->text.substr(1, failure->text.find(']') - 1);
}

}  // namespace mx::test
