// Entry points for what others may send to a process of a job: handshakes and frames of the rendezvous, which
// may come from strangers, and descriptions of calls, which other ranks send.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <span>
#include <string>

#include "comm/call_header.h"
#include "comm/communicator.h"
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

// A valid file is the description of a call that its reader can name.
bool call_header(CommBytes file) {
  comm::CallHeader header;
  if (file.size() != sizeof header) return false;
  std::memcpy(&header, file.data(), sizeof header);
  const std::string words = header.describe();
  comm_require(!words.empty() || header.failed != 0, "a call has a description");
  comm_require(words.size() < 2 * sizeof header, "a description is short");
  const bool named = header.failed == 0 && words != "bytes that describe no call";
  const bool point = header.collective == static_cast<uint8_t>(comm::Collective::send) ||
                     header.collective == static_cast<uint8_t>(comm::Collective::receive);
  // A send matches a receive, and no other call is the same for both ranks if it is not for one of them.
  comm_require(header.matches(header) == (header.failed == 0 && !point), "a call matches itself");
  comm::CallHeader other = header;
  const int send = static_cast<int>(comm::Collective::send),
            receive = static_cast<int>(comm::Collective::receive);
  if (point) other.collective = static_cast<uint8_t>(send + receive - header.collective);
  comm_require(header.matches(other) == (header.failed == 0), "a send matches a receive");
  other.count ^= 1;
  comm_require(!header.matches(other) && !other.matches(header), "calls of other sizes do not match");
  comm::Request request;
  request.collective = comm::Collective::allreduce;
  comm_require(comm::CallHeader::of(request, 7, 0).matches(header) ==
                   header.matches(comm::CallHeader::of(request, 7, 0)),
               "both ranks come to the same result");
  return named;
}

}  // namespace mx::fuzz
