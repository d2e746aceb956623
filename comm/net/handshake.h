// Handshake: how two processes of a job prove to each other that they belong to it.
//
// A state machine without socket, clock or thread: bytes in, bytes to send out. The driver limits the time.
//
//   connector                               acceptor
//     hello: identity, nonce         ->
//                                    <-       answer: identity, nonce, MAC
//     proof: identity, nonce, MAC    ->
//                                    <-       accept: identity, nonce, MAC
//
// Every message has kMessageBytes bytes, so nothing is allocated because of what a stranger sends. A MAC is
// the HMAC-SHA256, keyed with the job's secret, over all messages before it and its own message: it covers
// both nonces, both identities, the version and the side. So a recorded conversation, or one's own message
// sent back, is refused. A side that refuses answers with its own identity and the reason, and both report
// it. Garbage is refused without an answer.
//
// On an encrypted connection (comm/net/tls.h) a MAC also covers the connection's binding, so a proof of one
// connection is worth nothing on another. If only one side encrypts, both are told so.
//
// Job, epoch, rank and purpose are not secret: they travel as plain text. Without a secret (a job on one
// host, at loopback addresses) the handshake only protects against mistakes.
//
// docs/wire.md describes the bytes.
//
// Thread-safety: one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace mx::comm {

class TlsContext;

/// Two identities with this epoch on one side match in any epoch.
inline constexpr int64_t kAnyEpoch = -1;

struct Identity {
  static constexpr size_t kLongestJob = 64, kLongestPurpose = 32;

  std::string job;      ///< at most kLongestJob bytes, equal on both sides
  std::string secret;   ///< never sent
  int64_t epoch = 0;    ///< equal on both sides, or kAnyEpoch on one
  int32_t rank = -1;    ///< of the process that has this identity; negative: not a rank
  std::string purpose;  ///< of the connection, such as "rendezvous"; equal on both sides
  /// The keys with which connections are encrypted; null: clear text. Null on both sides, or on none.
  std::shared_ptr<const TlsContext> tls = nullptr;
};

/// What an authenticated remote said about itself.
struct RemoteIdentity {
  int64_t epoch = 0;
  int32_t rank = -1;
};

class Handshake {
 public:
  static constexpr size_t kMessageBytes = 192, kNonceBytes = 32, kMacBytes = 32;
  static constexpr uint16_t kVersion = 1;
  enum class Side : uint8_t { connector, acceptor };
  using Nonce = std::array<uint8_t, kNonceBytes>;

  /// What the driver does next: it sends `send`, then continues if done, or closes if there is a failure.
  struct Actions {
    std::string send;
    bool done = false;
    /// AuthenticationError: wrong secret, other job or epoch or rank. ProtocolError: garbage, other version
    /// or purpose. PeerLost: the connection ended.
    std::exception_ptr failure;
  };

  /// `expected_rank`: a remote with another rank is refused. Throws InvalidArgument for an identity that is
  /// too long.
  Handshake(Side side, Identity self, const Nonce& nonce,
            std::optional<int32_t> expected_rank = std::nullopt);
  ~Handshake();  // wipes the secret

  Handshake(const Handshake&) = delete;
  Handshake& operator=(const Handshake&) = delete;

  /// Returns the first message of a connector; nothing for an acceptor.
  Actions start();
  /// Returns how many bytes of the remote the handshake still takes before it acts; 0 after its end. A driver
  /// that reads no more leaves the bytes behind the handshake to the protocol above.
  size_t wanted() const;
  /// Takes at most wanted() bytes. `binding` identifies the encrypted connection (Stream::binding()) and is
  /// empty in clear text. Precondition: bytes.size() <= wanted().
  Actions receive(std::span<const std::byte> bytes, std::string_view binding = {});
  /// The connection ended. Returns the failure.
  Actions closed();

  bool done() const { return state_ == State::done; }
  /// Returns whether this side is a connector that has made its proof and waits for the acceptor's last
  /// message. The acceptor may use the connection already.
  bool awaits_accept() const { return state_ == State::accept; }
  /// Precondition: done().
  const RemoteIdentity& remote() const { return remote_; }

 private:
  enum class State : uint8_t { start, hello, answer, proof, accept, done, failed };
  struct Message;

  std::string make(uint8_t kind, uint8_t reason);
  Actions take();
  Actions fail(std::exception_ptr failure, uint8_t answer_reason = 0);
  std::exception_ptr refusal(const Message& message) const;
  /// Compares the remote's identity with this one; returns a reason to refuse it, or 0.
  uint8_t compare(const Message& message, std::exception_ptr& failure) const;
  bool mac_is_right() const;
  std::array<uint8_t, kMacBytes> mac(std::span<const uint8_t> message) const;

  const Side side_;
  Identity self_;
  const Nonce nonce_;
  const std::optional<int32_t> expected_rank_;
  State state_ = State::start;
  std::array<uint8_t, kMessageBytes> in_{};  // the message being received
  size_t filled_ = 0;                        // bytes of in_
  std::string transcript_;                   // all messages so far
  std::optional<std::string> claimed_;       // the identity part of the remote's first message
  std::string binding_;                      // of the connection
  RemoteIdentity remote_;
};

/// Returns unpredictable bytes.
Handshake::Nonce random_nonce();

/// HMAC-SHA256.
std::array<uint8_t, 32> hmac_sha256(std::string_view key, std::string_view data);

}  // namespace mx::comm
