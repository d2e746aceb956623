#include "comm/net/handshake.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/net/bytes.h"
#include "comm/net/openssl.h"
#include "engine/base/check.h"
#include "engine/base/error.h"

namespace mx::comm {
namespace {

// Offsets in a message. The first 8 bytes keep their meaning in all versions.
constexpr char kHandshakeMagic[4] = {'M', 'X', 'H', 'S'};
constexpr size_t kVersionAt = 4, kKindAt = 6, kReasonAt = 7, kEpochAt = 8, kRankAt = 16, kJobBytesAt = 20,
                 kPurposeBytesAt = 21, kReservedAt = 22, kJobAt = 24, kPurposeAt = 88, kNonceAt = 120,
                 kPaddingAt = 152, kMacAt = 160;
static_assert(kJobAt + Identity::kLongestJob == kPurposeAt);
static_assert(kPurposeAt + Identity::kLongestPurpose == kNonceAt);
static_assert(kMacAt + Handshake::kMacBytes == Handshake::kMessageBytes);

enum HandshakeKind : uint8_t { kHello = 1, kAnswer = 2, kProof = 3, kAccept = 4, kRefuse = 5 };
enum HandshakeReason : uint8_t {
  kNoReason,
  kOtherVersion,
  kOtherJob,
  kOtherEpoch,
  kOtherPurpose,
  kOtherRank,
  kWrongSecret,
  kWantsTls,
  kWantsClearText,
  kReasons
};

template <class E, class... Parts>
std::exception_ptr handshake_error(const Parts&... parts) {
  return std::make_exception_ptr(E(mx::detail::concat("[handshake] ", parts...)));
}

/// First byte of a connection with TLS.
constexpr uint8_t kTlsHandshakeRecord = 0x16;
constexpr char kTlsIsMissing[] =
    "expected TLS, got clear text; give this process and all others of the job the same --tls options "
    "(MX_TLS)",
               kTlsIsUnexpected[] =
                   "expected clear text, got TLS; give this process and all others of the job the same --tls "
                   "options (MX_TLS)";

const char* refusal_hint(uint8_t reason) {
  switch (reason) {
    case kOtherVersion:
      return "; both sides must run the same version of mxrun";
    case kOtherJob:
      return "; the address belongs to another job";
    case kOtherEpoch:
      return "; the process belongs to another start of the group";
    default:
      return "";
  }
}

}  // namespace

struct Handshake::Message {
  uint16_t version = 0;
  uint8_t kind = 0, reason = 0;
  int64_t epoch = 0;
  int32_t rank = 0;
  std::string job, purpose;

  /// Returns whether the bytes are well-formed.
  bool parse(std::span<const uint8_t, kMessageBytes> bytes) {
    version = load_little<uint16_t>(&bytes[kVersionAt]);
    kind = bytes[kKindAt];
    reason = bytes[kReasonAt];
    epoch = load_little<int64_t>(&bytes[kEpochAt]);
    rank = load_little<int32_t>(&bytes[kRankAt]);
    const size_t job_bytes = bytes[kJobBytesAt], purpose_bytes = bytes[kPurposeBytesAt];
    if (job_bytes > Identity::kLongestJob || purpose_bytes > Identity::kLongestPurpose) return false;
    const auto zero = [&](size_t begin, size_t end) {
      return std::all_of(bytes.begin() + static_cast<std::ptrdiff_t>(begin),
                         bytes.begin() + static_cast<std::ptrdiff_t>(end), [](uint8_t b) { return b == 0; });
    };
    if (!zero(kReservedAt, kJobAt) || !zero(kJobAt + job_bytes, kPurposeAt) ||
        !zero(kPurposeAt + purpose_bytes, kNonceAt) || !zero(kPaddingAt, kMacAt))
      return false;
    // A message without a proof has no MAC, and only a refusal has a reason.
    if ((kind == kHello || kind == kRefuse) && !zero(kMacAt, kMessageBytes)) return false;
    if (kind == kRefuse ? (reason == kNoReason || reason >= kReasons) : reason != kNoReason) return false;
    job.assign(reinterpret_cast<const char*>(&bytes[kJobAt]), job_bytes);
    purpose.assign(reinterpret_cast<const char*>(&bytes[kPurposeAt]), purpose_bytes);
    return true;
  }
};

Handshake::Handshake(Side side, Identity self, const Nonce& nonce, std::optional<int32_t> expected_rank)
    : side_(side), self_(std::move(self)), nonce_(nonce), expected_rank_(expected_rank) {
  MX_CHECK(self_.job.size() <= Identity::kLongestJob, InvalidArgument,
           "[handshake] expected a job of at most ", Identity::kLongestJob, " bytes, got ", self_.job.size());
  MX_CHECK(self_.purpose.size() <= Identity::kLongestPurpose, InvalidArgument,
           "[handshake] expected a purpose of at most ", Identity::kLongestPurpose, " bytes, got ",
           self_.purpose.size());
}

Handshake::~Handshake() { OPENSSL_cleanse(self_.secret.data(), self_.secret.size()); }

Handshake::Actions Handshake::start() {
  MX_CHECK(state_ == State::start, InvalidState, "[handshake] expected one start, got another");
  Actions actions;
  if (side_ == Side::connector) {
    actions.send = make(kHello, kNoReason);
    state_ = State::answer;
  } else {
    state_ = State::hello;
  }
  return actions;
}

size_t Handshake::wanted() const {
  const bool ended = state_ == State::start || state_ == State::done || state_ == State::failed;
  return ended ? 0 : kMessageBytes - filled_;
}

Handshake::Actions Handshake::receive(std::span<const std::byte> bytes, std::string_view binding) {
  MX_CHECK(bytes.size() <= wanted(), InvalidState, "[handshake] expected at most ", wanted(), " bytes, got ",
           bytes.size());
  if (bytes.empty()) return {};
  binding_ = binding;
  std::memcpy(in_.data() + filled_, bytes.data(), bytes.size());
  filled_ += bytes.size();
  if (self_.tls == nullptr && state_ == State::hello && in_[0] == kTlsHandshakeRecord)
    return fail(handshake_error<AuthenticationError>(kTlsIsUnexpected), kWantsClearText);
  // A stranger that speaks another protocol is refused by its first bytes, not only after the deadline.
  if (std::memcmp(in_.data(), kHandshakeMagic, std::min(filled_, sizeof kHandshakeMagic)) != 0)
    return fail(handshake_error<ProtocolError>(
        "expected the handshake of mxrun, got other bytes; another program uses this address"));
  if (filled_ >= kKindAt) {
    const auto version = load_little<uint16_t>(&in_[kVersionAt]);
    if (version != kVersion)
      return fail(
          handshake_error<ProtocolError>("expected version ", kVersion, " of the protocol, got version ",
                                         version, refusal_hint(kOtherVersion)),
          kOtherVersion);
  }
  if (filled_ < kMessageBytes) return {};
  filled_ = 0;
  return take();
}

Handshake::Actions Handshake::closed() {
  if (state_ == State::done || state_ == State::failed) return {};
  return fail(handshake_error<PeerLost>("expected a message, got the end of the connection"));
}

Handshake::Actions Handshake::take() {
  Message message;
  const uint8_t expected = state_ == State::hello    ? kHello
                           : state_ == State::answer ? kAnswer
                           : state_ == State::proof  ? kProof
                                                     : kAccept;
  if (!message.parse(in_) || (message.kind != expected && message.kind != kRefuse))
    return fail(handshake_error<ProtocolError>("expected a message of kind ", int{expected},
                                               ", got a malformed one"));
  // A stranger's first message must be a greeting; a refusal of nothing is garbage.
  if (message.kind == kRefuse) {
    if (state_ == State::hello)
      return fail(handshake_error<ProtocolError>("expected a greeting, got a refusal"));
    return fail(refusal(message));
  }
  if (self_.tls != nullptr && binding_.empty())
    return fail(handshake_error<AuthenticationError>(kTlsIsMissing), kWantsTls);
  std::exception_ptr failure;
  if (const uint8_t reason = compare(message, failure); reason != kNoReason) return fail(failure, reason);

  const std::string identity(reinterpret_cast<const char*>(&in_[kEpochAt]), kPaddingAt - kEpochAt);
  if (!claimed_) claimed_ = identity;
  if (identity != *claimed_)
    return fail(handshake_error<ProtocolError>("expected one identity in all messages, got another"));
  if (message.kind != kHello && !mac_is_right())
    return fail(handshake_error<AuthenticationError>("expected a proof that rank ", message.rank,
                                                     " knows the secret of job ", in_quotes(self_.job),
                                                     ", got a wrong one; its secret is another"),
                kWrongSecret);
  transcript_.append(reinterpret_cast<const char*>(in_.data()), kMessageBytes);
  remote_ = {message.epoch, message.rank};

  Actions actions;
  switch (message.kind) {
    case kHello:
      actions.send = make(kAnswer, kNoReason);
      state_ = State::proof;
      break;
    case kAnswer:
      actions.send = make(kProof, kNoReason);
      state_ = State::accept;
      break;
    case kProof:
      actions.send = make(kAccept, kNoReason);
      state_ = State::done;
      break;
    default:
      state_ = State::done;
      break;
  }
  actions.done = state_ == State::done;
  return actions;
}

std::string Handshake::make(uint8_t kind, uint8_t reason) {
  std::array<uint8_t, kMessageBytes> out{};
  std::memcpy(out.data(), kHandshakeMagic, sizeof kHandshakeMagic);
  store_little<uint16_t>(&out[kVersionAt], kVersion);
  out[kKindAt] = kind;
  out[kReasonAt] = reason;
  store_little<int64_t>(&out[kEpochAt], self_.epoch);
  store_little<int32_t>(&out[kRankAt], self_.rank);
  out[kJobBytesAt] = static_cast<uint8_t>(self_.job.size());
  out[kPurposeBytesAt] = static_cast<uint8_t>(self_.purpose.size());
  std::memcpy(&out[kJobAt], self_.job.data(), self_.job.size());
  std::memcpy(&out[kPurposeAt], self_.purpose.data(), self_.purpose.size());
  std::memcpy(&out[kNonceAt], nonce_.data(), nonce_.size());
  if (kind != kHello && kind != kRefuse) {
    const auto proof = mac(std::span<const uint8_t, kMessageBytes>(out).first<kMacAt>());
    std::memcpy(&out[kMacAt], proof.data(), proof.size());
  }
  std::string bytes(reinterpret_cast<const char*>(out.data()), out.size());
  if (kind != kRefuse) transcript_ += bytes;
  return bytes;
}

Handshake::Actions Handshake::fail(std::exception_ptr failure, uint8_t answer_reason) {
  Actions actions;
  if (answer_reason != kNoReason) actions.send = make(kRefuse, answer_reason);
  actions.failure = std::move(failure);
  state_ = State::failed;
  return actions;
}

uint8_t Handshake::compare(const Message& message, std::exception_ptr& failure) const {
  if (message.job != self_.job) {
    failure = handshake_error<AuthenticationError>("expected job ", in_quotes(self_.job), ", got job ",
                                                   in_quotes(message.job), refusal_hint(kOtherJob));
    return kOtherJob;
  }
  if (message.purpose != self_.purpose) {
    failure = handshake_error<ProtocolError>("expected a connection for ", in_quotes(self_.purpose),
                                             ", got one for ", in_quotes(message.purpose));
    return kOtherPurpose;
  }
  if (message.epoch != self_.epoch && message.epoch != kAnyEpoch && self_.epoch != kAnyEpoch) {
    failure =
        handshake_error<AuthenticationError>("expected epoch ", self_.epoch, " of job ", in_quotes(self_.job),
                                             ", got epoch ", message.epoch, refusal_hint(kOtherEpoch));
    return kOtherEpoch;
  }
  if (expected_rank_ && message.rank != *expected_rank_) {
    failure = handshake_error<AuthenticationError>("expected rank ", *expected_rank_, " of job ",
                                                   in_quotes(self_.job), ", got rank ", message.rank);
    return kOtherRank;
  }
  return kNoReason;
}

std::exception_ptr Handshake::refusal(const Message& m) const {
  switch (m.reason) {
    case kOtherVersion:
      return handshake_error<ProtocolError>("the other side refused this one: it expected version ",
                                            m.version, " of the protocol, got version ", kVersion,
                                            refusal_hint(m.reason));
    case kOtherJob:
      return handshake_error<AuthenticationError>("the other side refused this one: it expected job ",
                                                  in_quotes(m.job), ", got job ", in_quotes(self_.job),
                                                  refusal_hint(m.reason));
    case kOtherEpoch:
      return handshake_error<AuthenticationError>("the other side refused this one: it expected epoch ",
                                                  m.epoch, " of job ", in_quotes(m.job), ", got epoch ",
                                                  self_.epoch, refusal_hint(m.reason));
    case kOtherPurpose:
      return handshake_error<ProtocolError>("the other side refused this one: it expected a connection for ",
                                            in_quotes(m.purpose), ", got one for ", in_quotes(self_.purpose));
    case kOtherRank:
      return handshake_error<AuthenticationError>(
          "the other side refused this one: it expected another rank of job ", in_quotes(m.job),
          ", got rank ", self_.rank);
    case kWantsTls:
    case kWantsClearText:
      return handshake_error<AuthenticationError>("the other side refused this one: it ",
                                                  m.reason == kWantsTls ? kTlsIsMissing : kTlsIsUnexpected);
    default:
      return handshake_error<AuthenticationError>(
          "the other side refused this one: it expected a proof of the secret of job ", in_quotes(m.job),
          ", got a wrong one; the secrets differ");
  }
}

bool Handshake::mac_is_right() const {
  const auto right = mac(std::span<const uint8_t, kMessageBytes>(in_).first<kMacAt>());
  return CRYPTO_memcmp(right.data(), &in_[kMacAt], right.size()) == 0;
}

std::array<uint8_t, Handshake::kMacBytes> Handshake::mac(std::span<const uint8_t> message) const {
  std::string all = binding_ + transcript_;
  all.append(reinterpret_cast<const char*>(message.data()), message.size());
  return hmac_sha256(self_.secret, all);
}

Handshake::Nonce random_nonce() {
  Handshake::Nonce nonce;
  prepare_openssl();
  MX_CHECK(RAND_bytes(nonce.data(), static_cast<int>(nonce.size())) == 1, CommunicationError,
           "[handshake] expected random bytes, got an error of OpenSSL");
  return nonce;
}

std::array<uint8_t, 32> hmac_sha256(std::string_view key, std::string_view data) {
  prepare_openssl();
  std::array<uint8_t, 32> out{};
  EVP_MAC* algorithm = EVP_MAC_fetch(nullptr, "HMAC", nullptr);
  EVP_MAC_CTX* context = algorithm ? EVP_MAC_CTX_new(algorithm) : nullptr;
  char digest[] = "SHA256";
  const OSSL_PARAM parameters[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                                   OSSL_PARAM_construct_end()};
  // OpenSSL takes a null pointer for "keep the key", so an empty key needs a pointer too.
  const auto* key_bytes = reinterpret_cast<const uint8_t*>(key.empty() ? "" : key.data());
  size_t written = 0;
  const bool good =
      context && EVP_MAC_init(context, key_bytes, key.size(), parameters) == 1 &&
      EVP_MAC_update(context, reinterpret_cast<const uint8_t*>(data.data()), data.size()) == 1 &&
      EVP_MAC_final(context, out.data(), &written, out.size()) == 1 && written == out.size();
  EVP_MAC_CTX_free(context);
  EVP_MAC_free(algorithm);
  MX_CHECK(good, CommunicationError, "[handshake] expected an HMAC-SHA256, got an error of OpenSSL");
  return out;
}

}  // namespace mx::comm
