#include "kvstore/collective_op.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/base/check.h"
#include "ndarray/storage.h"

namespace mx::detail {

comm::Type comm_type(DType type) {
  switch (type) {
    case DType::f32:
      return comm::Type::f32;
    case DType::f64:
      return comm::Type::f64;
    case DType::f16:
      return comm::Type::f16;
    case DType::bf16:
      return comm::Type::bf16;
    case DType::i8:
      return comm::Type::i8;
    case DType::u8:
    case DType::bool_:
      return comm::Type::u8;
    case DType::i32:
      return comm::Type::i32;
    case DType::i64:
      return comm::Type::i64;
  }
  throw InvalidArgument(concat("[KVStore] expected a type that can be sent, got ", type));
}

void* memory_of(const NDArray& array, Stream* stream) {
  const ArrayImpl& impl = array.impl();
  return element_at(impl.storage->ensure(stream), impl.dtype, impl.offset);
}

namespace {

/// The arrays of an operation in flight, and the token that ends it.
struct CollectiveInFlight {
  std::vector<NDArray> reads, writes;
  Completion completion;
};

/// Adds the key to an error that does not name it, such as that of a lost process. Keeps the type.
std::exception_ptr with_key(const std::exception_ptr& error, const std::string& what) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    const std::string said = e.what();
    const bool named = said.find("'" + what + "'") != std::string::npos;
    // A rank whose value has failed makes another call, which says so: see CallSequence::skip().
    const bool failed = said.find("'no value of '") != std::string::npos;
    if (named && !failed) return error;
    return rewrite_current_exception([&](const std::string& text) {
      return (failed ? "a value of another rank has failed, so there is no sum: " : "") + text +
             (named ? "" : ", in '" + what + "'");
    });
  } catch (...) {
    return error;
  }
}

}  // namespace

void push_collective(CallSequence& sequence, const std::shared_ptr<DeviceGate>& gate, CollectiveOp op) {
  Engine& engine = current_engine();
  MX_CHECK(!engine.recording(), InvalidState, "[", op.name,
           "] expected a call outside of a recorded program, got one for '", op.what, "' while recording");
  std::vector<Var> reads, writes, updates;
  Context context = cpu();
  const auto look = [&](const NDArray& array) {
    if (array.context() == gate->context()) context = gate->context();
  };
  for (const NDArray& array : op.reads) {
    reads.push_back(array.var());
    look(array);
  }
  for (const NDArray& array : op.writes) {
    look(array);
    const bool whole = array.bytes() == array.impl().storage->bytes();
    (whole ? writes : updates).push_back(array.var());
  }
  const std::vector<NDArray> written = op.writes;
  CallSequence::Ticket ticket = sequence.take(op.what, op.fence ? std::nullopt : std::optional(op.priority));
  const PushOptions options{.reads = reads,
                            .writes = writes,
                            .updates = updates,
                            .context = context,
                            .priority = op.priority,
                            .name = op.name,
                            .lane = StreamKind::comm};
  engine.push_async(
      [ticket = std::move(ticket), call = std::move(op.call), what = std::move(op.what),
       reads_of = std::move(op.reads), writes_of = std::move(op.writes),
       gate](RunContext running, Completion completion) mutable {
        auto state = std::make_shared<CollectiveInFlight>();
        state->reads = std::move(reads_of);
        state->writes = std::move(writes_of);
        state->completion = std::move(completion);
        Stream* const stream = running.stream();
        CallSequence::Call started;
        try {
          started = call(stream);
        } catch (...) {  // there is no memory for the result, for example
          ticket.fail(std::current_exception());
          throw;
        }
        call = nullptr;
        if (stream != nullptr) {
          const std::shared_ptr<EventPoint> point = stream->mark();
          for (comm::Request& request : started.requests) request.work_ahead = gate->after(point);
        }
        started.done = [state, what](std::exception_ptr error) {
          Completion end = std::move(state->completion);
          state->reads.clear();
          state->writes.clear();
          if (error) {
            end.fail(with_key(error, what));
          } else {
            end.done();
          }
        };
        ticket.start(std::move(started));
      },
      options, op.where);
  // The call writes memory itself, so no operator does this for it.
  for (const NDArray& array : written) array.impl().storage->bump_version();
}

std::vector<comm::Request> cut_request(const comm::Request& request, int64_t cut_bytes) {
  const size_t size = comm::size_of(request.type);
  const size_t piece =
      cut_bytes <= 0 ? request.count : std::max<size_t>(static_cast<size_t>(cut_bytes) / size, 1);
  if (request.count <= piece) return {request};
  std::vector<comm::Request> pieces;
  for (size_t begin = 0; begin < request.count; begin += piece) {
    comm::Request part = request;
    part.count = std::min(piece, request.count - begin);
    if (part.in != nullptr) part.in = static_cast<const char*>(request.in) + begin * size;
    if (part.out != nullptr) part.out = static_cast<char*>(request.out) + begin * size;
    pieces.push_back(std::move(part));
  }
  return pieces;
}

}  // namespace mx::detail
