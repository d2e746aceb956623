// The requests of one key of a store with servers.
#include "kvstore/dist_server_key.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"

namespace mx::detail {
namespace {

std::string call_name(kv::Kind kind, const std::string& key) {
  return concat(to_string(kind), " of '", key, "'");
}

}  // namespace

void DistServerStore::Key::send_piece(Piece& piece, const Request& request, kv::Bytes content,
                                      std::function<void(kv::Bytes, std::exception_ptr)> done) {
  kv::Call call;
  call.header = {.kind = request.kind,
                 .flags = request.elements != nullptr ? static_cast<uint8_t>(request.type) : request.flags,
                 .store = core->store,
                 .key = piece.number,
                 .sequence = ++piece.sequence,
                 .number = request.number};
  call.body = std::move(content);
  call.priority = request.priority;
  call.timeout_ms = core->timeout_ms(request.timeout_ms);
  call.what = call_name(request.kind, body.name);
  if (request.into != nullptr) {
    const size_t size = comm::size_of(body.type);
    call.into = request.into + piece.begin * size;
    call.into_bytes = piece.count * size;
  }
  call.done = std::move(done);
  core->servers->start(piece.server, std::move(call));
}

void DistServerStore::Key::send(const Request& request, const Done& done) {
  const Done each = kv::after_all(pieces.size(), done);
  const size_t size = comm::size_of(request.type);
  for (Piece& piece : pieces) {
    kv::Bytes content;
    if (request.elements != nullptr)
      content = kv::Bytes::borrowed(request.elements + piece.begin * size, piece.count * size);
    send_piece(piece, request, std::move(content),
               [each](const kv::Bytes&, std::exception_ptr error) { each(std::move(error)); });
  }
}

void DistServerStore::Key::declare(int priority, int64_t timeout_ms, const Done& done,
                                   std::function<void()> next) {
  if (std::exchange(declared, true)) return next();
  const Done each =
      kv::after_all(pieces.size(), [done, next = std::move(next)](const std::exception_ptr& error) {
        if (error != nullptr) return done(error);
        // This runs on the thread of the connections, which would take an exception for a broken one.
        try {
          next();
        } catch (...) {
          done(std::current_exception());
        }
      });
  for (Piece& piece : pieces) {
    kv::KeyBody part = body;
    part.begin = piece.begin;
    part.count = piece.count;
    send_piece(piece, {.kind = kv::Kind::declare, .priority = priority, .timeout_ms = timeout_ms},
               kv::Bytes::of(encode(part)),
               [each](const kv::Bytes&, std::exception_ptr error) { each(std::move(error)); });
  }
}

void DistServerStore::Key::report_failed(const std::exception_ptr& error) {
  if (failed.exchange(true)) return;
  {
    const std::lock_guard lock(report_mutex_);
    reporting_ = true;
  }
  const Done reported = [self = shared_from_this()](const std::exception_ptr&) {
    std::vector<std::function<void()>> waiting;
    {
      const std::lock_guard lock(self->report_mutex_);
      self->reporting_ = false;
      waiting.swap(self->waiting_);
    }
    for (const auto& work : waiting) work();
  };
  const std::string text = error == nullptr ? "the operation that computes it was cancelled"
                                            : kv::text_of(error).substr(0, kv::kLargestText / 2);
  const uint8_t code = static_cast<uint8_t>(error == nullptr ? kv::ErrorCode::cancelled : kv::code_of(error));
  declare(0, 0, reported, [self = shared_from_this(), reported, text, code] {
    const Done each = kv::after_all(self->pieces.size(), reported);
    for (Piece& piece : self->pieces)
      self->send_piece(piece, {.kind = kv::Kind::failed, .flags = code}, kv::Bytes::of(text),
                       [each](const kv::Bytes&, std::exception_ptr e) { each(std::move(e)); });
  });
}

void DistServerStore::Key::after_report(std::function<void()> work) {
  {
    const std::lock_guard lock(report_mutex_);
    if (reporting_) return waiting_.push_back(std::move(work));
  }
  work();
}

DistServerStore::Core::~Core() {
  if (!open) return;
  // Nobody is left to be told of an error.
  const Done all = kv::after_all(control_sequence.size(),
                                 [group = std::weak_ptr(servers)](const std::exception_ptr& error) {
                                   const auto told = group.lock();
                                   if (told != nullptr && error == nullptr) told->store_closed();
                                 });
  for (size_t s = 0; s < control_sequence.size(); ++s) {
    kv::Call call;
    call.header = {.kind = kv::Kind::close, .store = store, .sequence = ++control_sequence[s]};
    call.what = "end of a store";
    call.done = [all](const kv::Bytes&, std::exception_ptr error) { all(std::move(error)); };
    servers->start(static_cast<int>(s), std::move(call));
  }
}

}  // namespace mx::detail
