// TlsContext: the keys and settings with which a process encrypts its connections.
//
// TLS 1.3 (RFC 8446), with one of two kinds of keys:
//   - from the job's secret: an external pre-shared key for each connection, derived from the secret (HKDF,
//     RFC 5869) with the job and the epoch of the connector as context, beside a Diffie-Hellman exchange. So
//     recorded connections stay secret even if the job's secret becomes known later (forward secrecy);
//   - certificates on both sides, which the job's own certificate authority has signed.
//
// An Identity that has a context makes Stream::secure() and handshake_on() encrypt. The handshake of
// comm/net/handshake.h then runs inside, and is bound to the encrypted connection. There are no session
// tickets, no data before the handshake, no older versions and no fall-back to clear text.
//
// Certificates are checked up to the certificate authority, and their dates; names in them are not compared,
// because the handshake inside proves who the other side is.
//
// Thread-safety: constant after the construction; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

struct ssl_ctx_st;

namespace mx::comm {

enum class TlsKeys : uint8_t { none, secret, certificates };

struct TlsSettings {
  TlsKeys keys = TlsKeys::none;
  /// Files in PEM format; empty unless the keys are certificates. The first one has the certificate of this
  /// process, and behind it those between it and the certificate authority.
  std::string certificate{}, key{}, authority{};
  /// After so many records a side changes the key with which it encrypts: AES-GCM stays safe for 2^24.5
  /// (RFC 8446, section 5.5). Tests choose few.
  uint64_t records_per_key = uint64_t{1} << 22;
};

class TlsContext {
 public:
  /// Reads the files. Throws InvalidArgument naming the file that is missing, malformed or does not match,
  /// AuthenticationError if others than the owner may read the file of the key.
  explicit TlsContext(TlsSettings settings);

  const TlsSettings& settings() const { return settings_; }
  bool has_certificates() const { return settings_.keys == TlsKeys::certificates; }
  ssl_ctx_st* get() const { return context_.get(); }

  /// Throws InvalidArgument if other processes with the same settings would refuse this certificate: it has
  /// expired, another authority has signed it, or it may not be used by both sides of a connection.
  void check_own_certificate() const;

 private:
  void load_files();

  const TlsSettings settings_;
  std::unique_ptr<ssl_ctx_st, void (*)(ssl_ctx_st*)> context_;
};

/// Returns the settings that the environment has: MX_TLS (off, psk or cert), and with cert MX_TLS_CERT,
/// MX_TLS_KEY and MX_TLS_CA. Throws InvalidArgument if they are incomplete.
TlsSettings tls_settings_of_process();
/// Returns the context of this process, made at the first call that succeeds; null if MX_TLS is off or not
/// set.
std::shared_ptr<const TlsContext> tls_of_process();

/// "off", "psk" or "cert": the value of MX_TLS.
const char* to_string(TlsKeys keys);
/// Returns what OpenSSL says about its last errors, and forgets them. Internal.
std::string take_openssl_errors();

}  // namespace mx::comm
