#include "comm/net/tls.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "comm/net/bytes.h"
#include "comm/net/fd.h"
#include "comm/net/openssl.h"
#include "comm/net/tls_session.h"
#include "engine/base/check.h"
#include "engine/base/error.h"

namespace mx::comm {
namespace {

// Both have the hash SHA-256, with which a pre-shared key is bound to its ciphers.
constexpr char kTlsCiphers[] = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";
constexpr size_t kLargestTlsFile = 1 << 20;

template <auto Free>
struct Freed {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};
using BioPtr = std::unique_ptr<BIO, Freed<BIO_free>>;
using CertificatePtr = std::unique_ptr<X509, Freed<X509_free>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;
using StoreContextPtr = std::unique_ptr<X509_STORE_CTX, Freed<X509_STORE_CTX_free>>;

/// Reads a file of at most kLargestTlsFile bytes. `what` names its content in messages.
std::string read_tls_file(const std::string& path, const char* what, bool only_owner) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  MX_CHECK(file, InvalidArgument, "[tls] expected ", what, " in file ", in_quotes(path), ", got ",
           std::strerror(errno));
  struct stat status {};
  MX_CHECK(::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode), InvalidArgument,
           "[tls] expected a regular file with ", what, ", got ", in_quotes(path));
  MX_CHECK(!only_owner || (status.st_mode & 077) == 0, AuthenticationError, "[tls] expected file ",
           in_quotes(path), " with ", what, " to be accessible to its owner only, got access for others; ",
           "run chmod 600");
  std::string content(kLargestTlsFile + 1, '\0');
  size_t filled = 0;
  while (filled < content.size()) {
    const ssize_t got = ::read(file.get(), content.data() + filled, content.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    MX_CHECK(got >= 0, InvalidArgument, "[tls] expected to read ", in_quotes(path), ", got ",
             std::strerror(errno));
    if (got == 0) break;
    filled += static_cast<size_t>(got);
  }
  MX_CHECK(filled <= kLargestTlsFile, InvalidArgument, "[tls] expected at most ", kLargestTlsFile,
           " bytes of ", what, " in file ", in_quotes(path), ", got more");
  content.resize(filled);
  return content;
}

/// A key that has a password would otherwise be asked for at the terminal.
int no_password(char*, int, int, void*) { return -1; }

/// Calls `take` for each certificate of a text in PEM format; returns how many there are.
template <class Take>
size_t for_each_certificate(const std::string& text, const std::string& path, Take take) {
  const BioPtr bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  size_t count = 0;
  ERR_clear_error();
  while (CertificatePtr certificate{PEM_read_bio_X509(bio.get(), nullptr, no_password, nullptr)}) {
    take(std::move(certificate));
    ++count;
  }
  // The end of the text is an error of this kind.
  const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
  MX_CHECK(count > 0 && at_end, InvalidArgument, "[tls] expected certificates in PEM format in file ",
           in_quotes(path), ", got ", at_end ? "none" : take_openssl_errors());
  ERR_clear_error();
  return count;
}

std::string environment_text(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

const char* to_string(TlsKeys keys) {
  return keys == TlsKeys::none ? "off" : keys == TlsKeys::secret ? "psk" : "cert";
}

std::string take_openssl_errors() {
  std::string text;
  for (unsigned long error; (error = ERR_get_error()) != 0;) {
    const char* const reason = ERR_reason_error_string(error);
    if (!text.empty()) text += "; ";
    text += reason != nullptr ? reason : "error " + std::to_string(error);
  }
  return text.empty() ? "an error without a text" : text;
}

TlsContext::TlsContext(TlsSettings settings)
    : settings_(std::move(settings)), context_(nullptr, SSL_CTX_free) {
  MX_CHECK(settings_.keys != TlsKeys::none, InvalidArgument, "[tls] expected keys for TLS, got none");
  prepare_openssl();
  ERR_clear_error();
  context_.reset(SSL_CTX_new(TLS_method()));
  SSL_CTX* const context = context_.get();
  MX_CHECK(context != nullptr && SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
               SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1 &&
               SSL_CTX_set_ciphersuites(context, kTlsCiphers) == 1 &&
               SSL_CTX_set_num_tickets(context, 0) == 1,
           CommunicationError, "[tls] expected OpenSSL to offer TLS 1.3, got ", take_openssl_errors());
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  // send() returns after each record, and the bytes of a record that waits may have moved meanwhile.
  SSL_CTX_set_mode(
      context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_NO_AUTO_CHAIN);
  if (has_certificates()) {
    load_files();
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  } else {
    TlsSession::set_key_callbacks(context);
  }
}

void TlsContext::load_files() {
  SSL_CTX* const context = context_.get();
  // Other trust, such as the authorities of the system, is not loaded.
  X509_STORE* const store = SSL_CTX_get_cert_store(context);
  for_each_certificate(read_tls_file(settings_.authority, "the certificate authority", false),
                       settings_.authority, [&](CertificatePtr certificate) {
                         MX_CHECK(X509_STORE_add_cert(store, certificate.get()) == 1 &&
                                      SSL_CTX_add_client_CA(context, certificate.get()) == 1,
                                  InvalidArgument, "[tls] expected a certificate authority in file ",
                                  in_quotes(settings_.authority), ", got ", take_openssl_errors());
                       });
  bool first = true;
  for_each_certificate(read_tls_file(settings_.certificate, "a certificate", false), settings_.certificate,
                       [&](CertificatePtr certificate) {
                         const int done = first ? SSL_CTX_use_certificate(context, certificate.get())
                                                : SSL_CTX_add1_chain_cert(context, certificate.get());
                         MX_CHECK(done == 1, InvalidArgument, "[tls] expected a certificate in file ",
                                  in_quotes(settings_.certificate), " that TLS 1.3 can use, got ",
                                  take_openssl_errors());
                         first = false;
                       });
  std::string text = read_tls_file(settings_.key, "the key", true);
  const BioPtr bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  const KeyPtr key(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_password, nullptr));
  OPENSSL_cleanse(text.data(), text.size());
  MX_CHECK(key, InvalidArgument, "[tls] expected a key in PEM format without a password in file ",
           in_quotes(settings_.key), ", got ", take_openssl_errors());
  MX_CHECK(SSL_CTX_use_PrivateKey(context, key.get()) == 1 && SSL_CTX_check_private_key(context) == 1,
           InvalidArgument, "[tls] expected the key of the certificate in file ",
           in_quotes(settings_.certificate), ", got another one in file ", in_quotes(settings_.key));
}

void TlsContext::check_own_certificate() const {
  if (!has_certificates()) return;
  STACK_OF(X509)* between = nullptr;
  SSL_CTX_get0_chain_certs(context_.get(), &between);
  X509* const own = SSL_CTX_get0_certificate(context_.get());
  for (const int purpose : {X509_PURPOSE_SSL_SERVER, X509_PURPOSE_SSL_CLIENT}) {
    const StoreContextPtr check(X509_STORE_CTX_new());
    MX_CHECK(
        check &&
            X509_STORE_CTX_init(check.get(), SSL_CTX_get_cert_store(context_.get()), own, between) == 1 &&
            X509_STORE_CTX_set_purpose(check.get(), purpose) == 1,
        CommunicationError, "[tls] expected to check a certificate, got ", take_openssl_errors());
    const bool good = X509_verify_cert(check.get()) == 1;
    ERR_clear_error();
    MX_CHECK(good, InvalidArgument, "[tls] expected a certificate in file ", in_quotes(settings_.certificate),
             " that the authority in file ", in_quotes(settings_.authority), " has signed for ",
             purpose == X509_PURPOSE_SSL_SERVER ? "servers" : "clients", ", got one that is refused: ",
             X509_verify_cert_error_string(X509_STORE_CTX_get_error(check.get())));
  }
}

TlsSettings tls_settings_of_process() {
  const std::string keys = environment_text("MX_TLS");
  TlsSettings settings;
  if (keys.empty() || keys == "off") return settings;
  MX_CHECK(keys == "psk" || keys == "cert", InvalidArgument,
           "[tls] expected MX_TLS to be 'off', 'psk' or 'cert', got ", in_quotes(keys));
  if (keys == "psk") {
    settings.keys = TlsKeys::secret;
    return settings;
  }
  settings.keys = TlsKeys::certificates;
  settings.certificate = environment_text("MX_TLS_CERT");
  settings.key = environment_text("MX_TLS_KEY");
  settings.authority = environment_text("MX_TLS_CA");
  MX_CHECK(
      !settings.certificate.empty() && !settings.key.empty() && !settings.authority.empty(), InvalidArgument,
      "[tls] expected MX_TLS_CERT, MX_TLS_KEY and MX_TLS_CA to name files, because MX_TLS ", "is cert, got ",
      in_quotes(settings.certificate), ", ", in_quotes(settings.key), " and ", in_quotes(settings.authority));
  return settings;
}

std::shared_ptr<const TlsContext> tls_of_process() {
  // Never destroyed, because operations may still use the job while the process ends.
  static const auto* const context = [] {
    TlsSettings settings = tls_settings_of_process();
    return settings.keys == TlsKeys::none ? new std::shared_ptr<const TlsContext>()
                                          : new std::shared_ptr<const TlsContext>(
                                                std::make_shared<const TlsContext>(std::move(settings)));
  }();
  return *context;
}

}  // namespace mx::comm
