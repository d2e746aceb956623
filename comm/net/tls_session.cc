#include "comm/net/tls_session.h"

#include <openssl/bio.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "comm/net/bytes.h"
#include "engine/base/check.h"
#include "engine/base/error.h"

namespace mx::comm {
namespace {

constexpr size_t kRecordBytes = SSL3_RT_MAX_PLAIN_LENGTH, kBindingBytes = 32, kSharedKeyBytes = 32;
constexpr uint8_t kAlertRecord = 0x15, kHandshakeRecord = 0x16;  // first bytes of TLS
constexpr uint8_t kAes128GcmSha256[2] = {0x13, 0x01};
constexpr std::string_view kKeyIdentityPrefix = "mxrun ";
constexpr size_t kLongestKeyIdentity = 128;
constexpr size_t kUnsentBytes = 256;  // more than a message that announces another key, encrypted
constexpr char kSameOptions[] =
    "; all processes of a job need the same --tls options (MX_TLS), and the same secret or certificates of "
    "the same authority";

/// Names the pre-shared key of a connector. It is not secret, and every part of it changes the key.
std::string key_identity_of(const Identity& self) {
  return mx::detail::concat(kKeyIdentityPrefix, self.epoch, " ", self.job);
}

bool is_key_identity(std::string_view text) {
  return text.starts_with(kKeyIdentityPrefix) && text.size() <= kLongestKeyIdentity;
}

/// HKDF with SHA-256 (RFC 5869).
bool derive_shared_key(std::string secret, std::string identity, std::array<uint8_t, kSharedKeyBytes>& key) {
  EVP_KDF* const algorithm = EVP_KDF_fetch(nullptr, "HKDF", nullptr);
  EVP_KDF_CTX* const context = algorithm != nullptr ? EVP_KDF_CTX_new(algorithm) : nullptr;
  char digest[] = "SHA256", salt[] = "mxrun TLS 1.3 external pre-shared key, version 1";
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, salt, sizeof salt - 1),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, secret.data(), secret.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, identity.data(), identity.size()),
      OSSL_PARAM_construct_end()};
  const bool good = context != nullptr && EVP_KDF_derive(context, key.data(), key.size(), parameters) == 1;
  EVP_KDF_CTX_free(context);
  EVP_KDF_free(algorithm);
  OPENSSL_cleanse(secret.data(), secret.size());
  return good;
}

/// A session that stands for the pre-shared key; null if OpenSSL refuses or there is no memory.
SSL_SESSION* session_of_key(SSL* ssl, std::string_view secret, std::string_view identity) noexcept try {
  std::array<uint8_t, kSharedKeyBytes> key{};
  SSL_SESSION* session = SSL_SESSION_new();
  const SSL_CIPHER* const cipher = SSL_CIPHER_find(ssl, kAes128GcmSha256);
  const bool good = session != nullptr && cipher != nullptr &&
                    derive_shared_key(std::string(secret), std::string(identity), key) &&
                    SSL_SESSION_set1_master_key(session, key.data(), key.size()) == 1 &&
                    SSL_SESSION_set_cipher(session, cipher) == 1 &&
                    SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1;
  OPENSSL_cleanse(key.data(), key.size());
  if (good) return session;
  SSL_SESSION_free(session);
  return nullptr;
} catch (const std::bad_alloc&) {  // an error must not pass through OpenSSL
  return nullptr;
}

ssize_t send_in_clear(int socket, const iovec* parts, size_t count) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts);
  message.msg_iovlen = count;
  return ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

ssize_t receive_in_clear(int socket, const iovec* parts, size_t count) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts);
  message.msg_iovlen = count;
  return ::recvmsg(socket, &message, MSG_DONTWAIT);
}

bool later(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR || error == ENOBUFS;
}

/// Says what an alert of the other side probably means for the user.
const char* hint_of_alert(int alert, bool certificates) {
  switch (alert) {
    case SSL_AD_DECRYPT_ERROR:
    case SSL_AD_ILLEGAL_PARAMETER:
      return certificates ? "" : "; the secrets differ";
    case SSL_AD_UNKNOWN_CA:
    case SSL_AD_BAD_CERTIFICATE:
    case SSL_AD_CERTIFICATE_UNKNOWN:
    case SSL_AD_UNSUPPORTED_CERTIFICATE:
      return certificates
                 ? "; its authority (--tls-ca) has not signed the certificate of this process, or the "
                   "other side uses no certificates"
                 : "; it does not use certificates, or another secret";
    case SSL_AD_CERTIFICATE_EXPIRED:
      return "; the certificate of this process has expired";
    case SSL_AD_CERTIFICATE_REQUIRED:
    case SSL_AD_HANDSHAKE_FAILURE:
    case SSL_AD_UNKNOWN_PSK_IDENTITY:
    case SSL_AD_MISSING_EXTENSION:
      return "; one side uses certificates (--tls-cert), the other the secret (--tls)";
    default:
      return "";
  }
}

}  // namespace

/// The functions that OpenSSL calls.
struct TlsSession::Callbacks {
  static TlsSession& of(BIO* bio) { return *static_cast<TlsSession*>(BIO_get_data(bio)); }
  static TlsSession& of(SSL* ssl) { return *static_cast<TlsSession*>(SSL_get_app_data(ssl)); }

  /// The sockets of OpenSSL itself would raise SIGPIPE.
  static int write(BIO* bio, const char* data, int bytes) {
    TlsSession& self = of(bio);
    BIO_clear_retry_flags(bio);
    self.socket_error_ = 0;
    ssize_t sent = self.flush_unsent()
                       ? ::send(self.socket_, data, static_cast<size_t>(bytes), MSG_DONTWAIT | MSG_NOSIGNAL)
                       : -1;
    if (sent < 0) self.socket_error_ = errno;
    if (self.changing_key_ && (sent >= 0 || later(self.socket_error_))) {
      // Has room, because only change_key() writes here, and unsent_ was empty before.
      // A read must not have to wait until the other side reads: both could wait for each other.
      const size_t done = static_cast<size_t>(std::max<ssize_t>(sent, 0));
      self.unsent_.append(data + done, static_cast<size_t>(bytes) - done);
      return bytes;
    }
    if (sent < 0 && later(self.socket_error_)) BIO_set_retry_write(bio);
    return static_cast<int>(sent);
  }

  static int read(BIO* bio, char* data, int bytes) {
    TlsSession& self = of(bio);
    BIO_clear_retry_flags(bio);
    self.socket_error_ = 0;
    const bool first = self.remote_ == Speaks::unknown;
    uint8_t byte = 0;
    const ssize_t got = first ? ::recv(self.socket_, &byte, 1, MSG_DONTWAIT | MSG_PEEK)
                              : ::recv(self.socket_, data, static_cast<size_t>(bytes), MSG_DONTWAIT);
    if (got < 0) self.socket_error_ = errno;
    if (got < 0 && later(self.socket_error_)) BIO_set_retry_read(bio);
    self.at_end_ = got == 0;
    if (got <= 0 || !first) return static_cast<int>(got);
    const bool is_tls =
        byte == kHandshakeRecord || (byte == kAlertRecord && self.side_ == Handshake::Side::connector);
    self.remote_ = is_tls ? Speaks::tls : Speaks::clear;
    return is_tls ? read(bio, data, bytes) : -1;
  }

  static long control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

  static BIO_METHOD* methods() {
    static BIO_METHOD* const made = [] {
      BIO_METHOD* const method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "mxrun socket");
      if (method == nullptr || BIO_meth_set_write(method, write) != 1 ||
          BIO_meth_set_read(method, read) != 1 || BIO_meth_set_ctrl(method, control) != 1)
        return static_cast<BIO_METHOD*>(nullptr);
      return method;
    }();
    return made;
  }

  static int use_key(SSL* ssl, const EVP_MD*, const uint8_t** identity, size_t* bytes,
                     SSL_SESSION** session) {
    const TlsSession& self = of(ssl);
    *session = session_of_key(ssl, self.secret_, self.key_identity_);
    *identity = reinterpret_cast<const uint8_t*>(self.key_identity_.data());
    *bytes = self.key_identity_.size();
    return *session != nullptr ? 1 : 0;
  }

  /// Derives the key that the connector names. That its job and epoch are right is what the handshake above
  /// checks, which can tell the connector why it is refused.
  static int find_key(SSL* ssl, const uint8_t* identity, size_t bytes, SSL_SESSION** session) {
    const std::string_view name(reinterpret_cast<const char*>(identity), bytes);
    *session = nullptr;
    if (!is_key_identity(name)) return 1;
    *session = session_of_key(ssl, of(ssl).secret_, name);
    return *session != nullptr ? 1 : 0;
  }
};

void TlsSession::set_key_callbacks(ssl_ctx_st* context) {
  SSL_CTX_set_psk_use_session_callback(context, Callbacks::use_key);
  SSL_CTX_set_psk_find_session_callback(context, Callbacks::find_key);
}

TlsSession::TlsSession(int socket, Handshake::Side side, const Identity& self)
    : socket_(socket),
      side_(side),
      context_(self.tls),
      key_identity_(key_identity_of(self)),
      ssl_(nullptr, SSL_free),
      receive_wants_(POLLIN),
      send_wants_(POLLOUT) {
  MX_CHECK(context_ != nullptr, InvalidState, "[tls] expected an identity with TLS, got one without");
  if (!context_->has_certificates()) {
    MX_CHECK(!self.secret.empty(), InvalidArgument,
             "[tls] expected a secret, because MX_TLS is psk, got none; ",
             "mxrun makes one, otherwise MX_SECRET_FILE names a file with one");
    secret_ = self.secret;
  }
  unsent_.reserve(kUnsentBytes);
  ERR_clear_error();
  ssl_.reset(SSL_new(context_->get()));
  BIO* const bio = ssl_ && Callbacks::methods() != nullptr ? BIO_new(Callbacks::methods()) : nullptr;
  MX_CHECK(bio != nullptr, CommunicationError, "[tls] expected memory for a connection, got ",
           take_openssl_errors());
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_.get(), bio, bio);
  SSL_set_app_data(ssl_.get(), this);
  // No certificate is trusted beside the pre-shared key, so an acceptor that answers with one is refused.
  if (!context_->has_certificates() && side == Handshake::Side::connector)
    SSL_set_verify(ssl_.get(), SSL_VERIFY_PEER, nullptr);
  if (side == Handshake::Side::connector)
    SSL_set_connect_state(ssl_.get());
  else
    SSL_set_accept_state(ssl_.get());
}

TlsSession::~TlsSession() {
  close_notify();
  OPENSSL_cleanse(secret_.data(), secret_.size());
}

void TlsSession::close_notify() noexcept {
  if (!process_.is_here() || binding_.empty() || failure_) return;
  ERR_clear_error();
  SSL_shutdown(ssl_.get());
  ERR_clear_error();
}

void TlsSession::fail(const std::string& got, bool authentication) noexcept try {
  failure_text_ = "[tls] " + got;
  failure_ = authentication ? std::make_exception_ptr(AuthenticationError(failure_text_))
                            : std::make_exception_ptr(PeerLost(failure_text_));
} catch (...) {
  failure_ = std::current_exception();
}

std::string TlsSession::describe_failure() const {
  const unsigned long error = ERR_peek_error();
  const int reason = ERR_GET_LIB(error) == ERR_LIB_SSL ? ERR_GET_REASON(error) : 0;
  const bool certificates = context_->has_certificates();
  const std::string what = take_openssl_errors();
  if (heard_) return "expected what the other side has encrypted, got an error: " + what;
  if (reason >= SSL_AD_REASON_OFFSET) {
    const int alert = reason - SSL_AD_REASON_OFFSET;
    return mx::detail::concat("the other side refused this one with the alert '",
                              SSL_alert_desc_string_long(alert), "'", hint_of_alert(alert, certificates),
                              kSameOptions);
  }
  if (reason == SSL_R_BINDER_DOES_NOT_VERIFY)
    return mx::detail::concat(
        "expected a proof of the secret of the job, got a wrong one; the secrets differ", kSameOptions);
  const long verified = SSL_get_verify_result(ssl_.get());
  if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED && certificates)
    return mx::detail::concat(
        "expected a certificate that the authority in ", in_quotes(context_->settings().authority),
        " has signed, got one that is refused: ", X509_verify_cert_error_string(verified), kSameOptions);
  if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED)
    return mx::detail::concat("expected a proof of the secret of the job, got a certificate", kSameOptions);
  return mx::detail::concat("expected the handshake of TLS 1.3, got an error: ", what, kSameOptions);
}

bool TlsSession::settle() noexcept try {
  if (!binding_.empty()) [[likely]]
    return true;
  if (failure_) return false;
  if (SSL_is_init_finished(ssl_.get()) == 0) return true;
  if (!context_->has_certificates() && SSL_session_reused(ssl_.get()) != 1) {
    fail(
        mx::detail::concat("expected a connection with the secret of the job, got another one", kSameOptions),
        true);
    return false;
  }
  std::string bytes(kBindingBytes, '\0');
  constexpr std::string_view kLabel = "EXPORTER-Channel-Binding";
  if (SSL_export_keying_material(ssl_.get(), reinterpret_cast<uint8_t*>(bytes.data()), bytes.size(),
                                 kLabel.data(), kLabel.size(), nullptr, 0, 0) != 1) {
    fail("expected to bind the handshake to the connection, got " + take_openssl_errors(), true);
    return false;
  }
  binding_ = std::move(bytes);
  OPENSSL_cleanse(secret_.data(), secret_.size());
  secret_.clear();
  return true;
} catch (...) {
  failure_ = std::current_exception();
  return false;
}

ssize_t TlsSession::outcome(int result, short& wants) noexcept {
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_READ:
      wants = POLLIN;
      errno = EAGAIN;
      return -1;
    case SSL_ERROR_WANT_WRITE:
      wants = POLLOUT;
      errno = EAGAIN;
      return -1;
    case SSL_ERROR_ZERO_RETURN:
      ended_ = true;
      return 0;
    case SSL_ERROR_SYSCALL:
      ERR_clear_error();
      if (at_end_) {
        ended_ = true;
        return 0;
      }
      errno = socket_error_ != 0 ? socket_error_ : EIO;
      return -1;
    default:
      try {
        fail(describe_failure(), !heard_);
      } catch (...) {
        failure_ = std::current_exception();
      }
      errno = EPROTO;
      return -1;
  }
}

ssize_t TlsSession::receive(const iovec* parts, size_t count) noexcept {
  if (!process_.is_here()) return errno = EBADF, -1;
  if (is_clear()) return receive_in_clear(socket_, parts, count);
  unreported_ = false;
  if (failure_) return errno = EPROTO, -1;
  if (ended_) return 0;
  ssize_t total = 0;
  for (size_t i = 0; i < count; ++i) {
    auto* const data = static_cast<std::byte*>(parts[i].iov_base);
    for (size_t at = 0; at < parts[i].iov_len;) {
      size_t got = 0;
      at_end_ = false;
      ERR_clear_error();
      const int result = SSL_read_ex(ssl_.get(), data + at, parts[i].iov_len - at, &got);
      if (is_clear()) return receive_in_clear(socket_, parts, count);
      if (!settle()) return errno = EPROTO, -1;
      if (result == 1) {
        heard_ = true;
        receive_wants_ = POLLIN;
        at += got;
        total += static_cast<ssize_t>(got);
        continue;
      }
      const ssize_t end = outcome(result, receive_wants_);
      if (total == 0) return end;
      unreported_ = end == 0 || errno != EAGAIN;
      return total;
    }
  }
  return total;
}

ssize_t TlsSession::send(const iovec* parts, size_t count) noexcept {
  if (!process_.is_here()) return errno = EBADF, -1;
  size_t left = 0;
  for (size_t i = 0; i < count; ++i) left += parts[i].iov_len;
  const auto in_clear = [&] {
    // A connector only waits for the reason why it is refused.
    return side_ == Handshake::Side::connector ? static_cast<ssize_t>(left)
                                               : send_in_clear(socket_, parts, count);
  };
  if (is_clear()) return in_clear();
  if (failure_) return errno = EPROTO, -1;
  if (send_error_ != 0) return errno = send_error_, -1;
  ssize_t total = 0;
  for (size_t i = 0, at = 0; left > 0;) {
    while (at == parts[i].iov_len) ++i, at = 0;
    const size_t bytes = retried_bytes_ > 0 ? retried_bytes_ : std::min(left, kRecordBytes);
    const auto* data = static_cast<const std::byte*>(parts[i].iov_base) + at;
    if (parts[i].iov_len - at < bytes) {
      try {
        staging_.resize(kRecordBytes);
      } catch (...) {
        return errno = ENOMEM, -1;
      }
      size_t filled = 0;
      for (size_t j = i, from = at; filled < bytes; ++j, from = 0) {
        const size_t part = std::min(parts[j].iov_len - from, bytes - filled);
        std::memcpy(staging_.data() + filled, static_cast<const std::byte*>(parts[j].iov_base) + from, part);
        filled += part;
      }
      data = staging_.data();
    }
    size_t written = 0;
    at_end_ = false;
    ERR_clear_error();
    const int result = SSL_write_ex(ssl_.get(), data, bytes, &written);
    if (is_clear()) return in_clear();
    if (!settle()) return errno = EPROTO, -1;
    if (result != 1) {
      const ssize_t end = outcome(result, send_wants_);
      if (end < 0 && errno == EAGAIN) {
        retried_bytes_ = bytes;
      } else {
        // The record that OpenSSL holds can never leave, so nothing behind it can.
        send_error_ = end == 0 ? EPIPE : errno;
      }
      if (total > 0) return total;
      if (end == 0) errno = EPIPE;
      return -1;
    }
    retried_bytes_ = 0;
    send_wants_ = POLLOUT;
    total += static_cast<ssize_t>(written);
    left -= written;
    for (size_t step = written; step > 0;) {
      const size_t part = std::min(parts[i].iov_len - at, step);
      at += part;
      step -= part;
      if (step > 0) ++i, at = 0;
    }
    if (++records_ >= context_->settings().records_per_key) change_key();
  }
  return total;
}

void TlsSession::change_key() noexcept {
  ERR_clear_error();
  changing_key_ = true;
  // An error shows again in the next call.
  if (SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1) SSL_do_handshake(ssl_.get());
  changing_key_ = false;
  ERR_clear_error();
  records_ = 0;
}

bool TlsSession::flush_unsent() noexcept {
  while (!unsent_.empty()) {
    const ssize_t sent = ::send(socket_, unsent_.data(), unsent_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) return false;
    unsent_.erase(0, static_cast<size_t>(sent));
  }
  return true;
}

size_t TlsSession::pending() const noexcept {
  if (unreported_) return 1;
  return binding_.empty() ? 0 : static_cast<size_t>(SSL_pending(ssl_.get()));
}

short TlsSession::events(short wanted) const noexcept {
  if (is_clear()) return wanted;
  return static_cast<short>((wanted & ~(POLLIN | POLLOUT)) | ((wanted & POLLIN) != 0 ? receive_wants_ : 0) |
                            ((wanted & POLLOUT) != 0 ? send_wants_ : 0));
}

bool TlsSession::ended() noexcept {
  if (ended_ || failure_ || !process_.is_here()) return true;
  char byte = 0;
  if (is_clear()) return ::recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
  ERR_clear_error();
  at_end_ = false;
  const int result = SSL_peek(ssl_.get(), &byte, 1);
  if (result > 0) return false;
  const ssize_t end = outcome(result, receive_wants_);
  return end == 0 || errno != EAGAIN;
}

}  // namespace mx::comm
