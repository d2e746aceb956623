// TlsSession: TLS on one connected socket. Internal to Stream.
//
// send() and receive() behave like sendmsg() and recvmsg() on a non-blocking socket; the handshake of TLS is
// a part of the first calls. The socket belongs to the caller and must outlive the session.
//
// The first byte of the other side decides whether it speaks TLS. If it does not, the session passes bytes
// through in clear text, so that the handshake above (comm/net/handshake.h) can tell both sides why it fails:
// a handshake whose Identity has a TlsContext never succeeds on a connection with an empty binding().
//
// Forks. In a forked child the session does nothing: bytes that parent and child encrypt with equal keys
// would reveal each other.
//
// Thread-safety: one thread at a time, for both directions together.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/net/handshake.h"
#include "comm/net/tls.h"
#include "engine/base/process_mark.h"

struct bio_st;
struct ssl_st;

namespace mx::comm {

class TlsSession {
 public:
  /// `self` has a TlsContext. Throws InvalidArgument if the keys are to come from a secret and there is none.
  TlsSession(int socket, Handshake::Side side, const Identity& self);
  /// Tells the other side that nothing follows, if the socket takes the message at once.
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  /// Sends what the socket takes. Returns its bytes, or -1 and sets errno: EAGAIN if it takes nothing now,
  /// EPROTO if TLS has failed. After EAGAIN, the next call must begin with the same bytes. After another
  /// error, later calls send nothing and fail with it; receive() still returns what has arrived.
  ssize_t send(const iovec* parts, size_t count) noexcept;
  /// Receives until the parts are full or the socket is empty. Returns the bytes, 0 at the end of the
  /// connection, or -1 and sets errno as send() does.
  ssize_t receive(const iovec* parts, size_t count) noexcept;
  /// Returns how many received bytes poll() does not know of; 1 for an error or an end that is not reported.
  size_t pending() const noexcept;
  /// Returns the events of poll() to wait for after EAGAIN, of POLLIN for receive() and POLLOUT for send().
  short events(short wanted) const noexcept;
  /// Returns whether the other side has ended the connection and all its bytes have been received.
  bool ended() noexcept;
  /// Sends close_notify, if the socket takes it at once.
  void close_notify() noexcept;

  /// Returns 32 bytes that only the two ends of this connection know (RFC 9266); empty before the handshake
  /// of TLS has succeeded.
  std::string_view binding() const { return binding_; }
  /// Why TLS has failed: AuthenticationError before the other side has sent something, PeerLost later; null
  /// if it has not.
  std::exception_ptr failure() const { return failure_; }
  const std::string& failure_text() const { return failure_text_; }

  /// For TlsContext: lets sessions find their pre-shared keys.
  static void set_key_callbacks(ssl_ctx_st* context);

 private:
  enum class Speaks : uint8_t { unknown, tls, clear };
  struct Callbacks;

  /// Returns whether the remote has turned out to speak clear text.
  bool is_clear() const { return remote_ == Speaks::clear; }
  /// What `result` of an operation means: returns 0 or -1 as receive() does.
  ssize_t outcome(int result, short& wants) noexcept;
  void fail(const std::string& got, bool authentication) noexcept;
  /// To be called after each operation that succeeded; once, it ends the handshake. Returns whether the
  /// connection is good.
  bool settle() noexcept;
  std::string describe_failure() const;
  /// Encrypts with another key from now on.
  void change_key() noexcept;
  /// Sends what is left of the message that announced another key. Returns whether nothing is left.
  bool flush_unsent() noexcept;

  const int socket_;
  const Handshake::Side side_;
  const std::shared_ptr<const TlsContext> context_;
  std::string secret_;              // wiped when the handshake has ended
  const std::string key_identity_;  // names the pre-shared key of this connector
  const ProcessMark process_;
  std::unique_ptr<ssl_st, void (*)(ssl_st*)> ssl_;

  Speaks remote_ = Speaks::unknown;
  bool heard_ = false;       // something of the other side has been decrypted: it has accepted this one
  bool ended_ = false;       // the other side has said or shown that nothing follows
  bool unreported_ = false;  // receive() has returned bytes ahead of an error or the end
  int socket_error_ = 0;     // of the last operation on the socket
  int send_error_ = 0;       // of the first send() that failed for good; later ones fail alike
  bool at_end_ = false;      // the last read of the socket found its end
  short receive_wants_, send_wants_;
  size_t retried_bytes_ = 0;        // of the record that send() could not write, for the next call
  uint64_t records_ = 0;            // with the present key
  bool changing_key_ = false;       // within change_key()
  std::string unsent_;              // encrypted bytes of change_key() that the socket has not taken
  std::vector<std::byte> staging_;  // where small parts are put together to one record
  std::string binding_, failure_text_;
  std::exception_ptr failure_;
};

}  // namespace mx::comm
