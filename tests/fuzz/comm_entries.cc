// Entry points for what a stranger may send to a process of a job: handshakes and frames of the rendezvous.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>
#include <string>

#include "comm/net/handshake.h"
#include "comm/rendezvous/machine.h"
#include "comm/rendezvous/protocol.h"
#include "engine/base/error.h"
#include "tests/fuzz/entries.h"

namespace mx::fuzz {
namespace {

using CommBytes = std::span<const std::byte>;

void comm_require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

void require_error_of_comm(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const CommunicationError& e) {
    comm_require(e.what()[0] == '[', "a message begins with its reader");
  } catch (...) {
    comm_require(false, "a failure is a CommunicationError");
  }
}

/// Returns whether the bytes are all that one side needs. A fixed nonce makes recorded conversations valid.
bool completes_handshake(comm::Handshake::Side side, CommBytes bytes, size_t part) {
  const bool connects = side == comm::Handshake::Side::connector;
  comm::Handshake::Nonce nonce{};
  nonce.fill(connects ? 1 : 2);
  comm::Handshake handshake(side, {"digits", "a secret", 2, connects ? 0 : 1, "fuzz"}, nonce);
  handshake.start();
  while (!bytes.empty() && handshake.wanted() > 0) {
    const size_t n = std::min({part, bytes.size(), handshake.wanted()});
    const comm::Handshake::Actions actions = handshake.receive(bytes.first(n));
    bytes = bytes.subspan(n);
    comm_require(actions.send.empty() || actions.send.size() == comm::Handshake::kMessageBytes,
                 "every message has the same size");
    comm_require(!(actions.done && actions.failure), "a handshake ends one way");
    if (actions.failure) require_error_of_comm(actions.failure);
  }
  if (!handshake.done()) {
    const auto closed = handshake.closed();
    if (closed.failure) require_error_of_comm(closed.failure);
  }
  return handshake.done() && bytes.empty();
}

}  // namespace

bool handshake(CommBytes file) {
  bool completes[2];
  for (const size_t part : {size_t{1000}, size_t{5}})
    completes[part == 5] = completes_handshake(comm::Handshake::Side::acceptor, file, part) ||
                           completes_handshake(comm::Handshake::Side::connector, file, part);
  comm_require(completes[0] == completes[1], "it does not matter how the bytes are cut");
  return completes[0];
}

// A valid file is what a client sends, up to its farewell.
bool rendezvous(CommBytes file) {
  comm::FrameDecoder decoder;
  comm::RendezvousMachine machine({.dead_after_ms = 10, .max_table_bytes = 1 << 20, .max_requests = 8});
  for (const uint64_t connection : {1, 2})
    machine.connect(connection, {0, static_cast<int32_t>(connection)}, 0);
  machine.receive(2, {comm::FrameKind::join, 1, 0, "worker", "n2"}, 0);
  machine.receive(2, {comm::FrameKind::watch, 2, 0, "", ""}, 0);
  std::string again;
  bool malformed = false, parted = false, more = false;
  try {
    decoder.receive(file);
  } catch (const ProtocolError&) {
    malformed = true;
  }
  int64_t now = 0;
  while (const auto frame = decoder.next()) {
    more |= parted;
    parted |= frame->kind == comm::FrameKind::farewell;
    comm::encode(*frame, again);
    machine.receive(1, *frame, now += 3);
    machine.tick(now);
    for (const auto& [to, answer] : machine.take().send) {
      comm_require(to == 1 || to == 2, "answers are for clients");
      comm::FrameDecoder other;
      const std::string bytes = comm::encode(answer);
      other.receive(std::as_bytes(std::span(bytes)));
      comm_require(other.next() == answer, "every answer can be read");
    }
  }
  comm_require(again.size() <= file.size() &&
                   std::equal(again.begin(), again.end(), reinterpret_cast<const char*>(file.data())),
               "frames have one form");
  machine.disconnect(1, "end");
  return !malformed && parted && !more && decoder.partial_bytes() == 0;
}

}  // namespace mx::fuzz
