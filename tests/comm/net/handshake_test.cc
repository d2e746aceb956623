// Two handshakes that talk to each other, and an attacker between them.
#include "comm/net/handshake.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "comm/net/tls.h"
#include "engine/base/error.h"

namespace mx::comm {
namespace {

using Side = Handshake::Side;

Identity identity_of_rank(int32_t rank) { return {"digits", "a secret", 2, rank, "tcp"}; }

Handshake::Nonce test_nonce(uint8_t seed) {
  Handshake::Nonce nonce;
  for (size_t i = 0; i < nonce.size(); ++i) nonce[i] = static_cast<uint8_t>(seed * 31 + i * 7);
  return nonce;
}

std::string text_of(const std::exception_ptr& error) {
  if (!error) return "none";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  }
}

template <class E>
bool is_error(const std::exception_ptr& error) {
  if (!error) return false;
  try {
    std::rethrow_exception(error);
  } catch (const E&) {
    return true;
  } catch (...) {
    return false;
  }
}

struct Conversation {
  bool connector_done = false, acceptor_done = false;
  std::exception_ptr connector_failure, acceptor_failure;
  std::vector<std::string> messages;  // in the order in which they were sent
};

using Attacker = std::function<std::string(size_t message, std::string bytes)>;

/// Lets two sides talk until nobody says anything. `attacker` may change each message; `part` is the number
/// of bytes that arrive at a time.
/// The bindings of the two ends are equal unless the connection has a third party in the middle.
struct Bindings {
  std::string connector, acceptor;
};

Conversation converse(Handshake& connector, Handshake& acceptor, const Attacker& attacker = {},
                      size_t part = 1000, const Bindings& bindings = {}) {
  Conversation talk;
  std::string to_acceptor, to_connector;
  const auto act = [&](Handshake::Actions actions, bool is_connector) {
    (is_connector ? talk.connector_done : talk.acceptor_done) |= actions.done;
    if (actions.failure) (is_connector ? talk.connector_failure : talk.acceptor_failure) = actions.failure;
    if (actions.send.empty()) return;
    std::string bytes = actions.send;
    if (attacker) bytes = attacker(talk.messages.size(), bytes);
    talk.messages.push_back(bytes);
    (is_connector ? to_acceptor : to_connector) += bytes;
  };
  const auto deliver = [&](Handshake& to, std::string& bytes, bool is_connector) {
    const size_t take = std::min({bytes.size(), to.wanted(), part});
    if (take == 0) return false;
    const std::string now = bytes.substr(0, take);
    bytes.erase(0, take);
    act(to.receive(std::as_bytes(std::span(now)), is_connector ? bindings.connector : bindings.acceptor),
        is_connector);
    return true;
  };
  act(acceptor.start(), false);
  act(connector.start(), true);
  while (deliver(acceptor, to_acceptor, false) || deliver(connector, to_connector, true)) {
  }
  return talk;
}

Conversation converse(const Identity& connector, const Identity& acceptor, const Attacker& attacker = {},
                      size_t part = 1000) {
  Handshake a(Side::connector, connector, test_nonce(1)), b(Side::acceptor, acceptor, test_nonce(2));
  return converse(a, b, attacker, part);
}

void expect_both_refuse(const Conversation& talk, const std::vector<std::string>& parts) {
  EXPECT_FALSE(talk.connector_done);
  EXPECT_FALSE(talk.acceptor_done);
  for (const auto& failure : {talk.connector_failure, talk.acceptor_failure}) {
    ASSERT_TRUE(failure);
    for (const std::string& part : parts)
      EXPECT_NE(text_of(failure).find(part), std::string::npos) << text_of(failure);
    EXPECT_EQ(text_of(failure).find("secret word"), std::string::npos) << text_of(failure);
  }
}

TEST(Hmac, IsThatOfTheStandard) {
  const auto hex = [](const auto& bytes) {
    std::string text;
    for (const uint8_t byte : bytes) {
      text += "0123456789abcdef"[byte >> 4];
      text += "0123456789abcdef"[byte & 15];
    }
    return text;
  };
  // RFC 4231, test case 2, and the HMAC of nothing with an empty key.
  EXPECT_EQ(hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex(hmac_sha256("", "")), "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

TEST(Handshake, BothSidesLearnWhoTheOtherIs) {
  for (const size_t part : {1, 7, 191, 1000}) {
    Handshake a(Side::connector, identity_of_rank(3), test_nonce(1), 5);
    Handshake b(Side::acceptor, identity_of_rank(5), test_nonce(2));
    const Conversation talk = converse(a, b, {}, part);
    ASSERT_TRUE(talk.connector_done) << text_of(talk.connector_failure);
    ASSERT_TRUE(talk.acceptor_done) << text_of(talk.acceptor_failure);
    EXPECT_EQ(a.remote().rank, 5);
    EXPECT_EQ(b.remote().rank, 3);
    EXPECT_EQ(b.remote().epoch, 2);
    EXPECT_EQ(talk.messages.size(), 4u);
    EXPECT_EQ(a.wanted(), 0u);
    EXPECT_EQ(b.wanted(), 0u);
  }
}

TEST(Handshake, WorksWithoutASecret) {
  Identity self = identity_of_rank(0);
  self.secret.clear();
  EXPECT_TRUE(converse(self, self).acceptor_done);
  expect_both_refuse(converse(self, identity_of_rank(0)), {"secret", "'digits'"});
  expect_both_refuse(converse(identity_of_rank(0), self), {"secret", "'digits'"});
}

TEST(Handshake, TheSecretIsNeverSent) {
  const Conversation talk = converse(identity_of_rank(0), identity_of_rank(1));
  for (const std::string& message : talk.messages) {
    EXPECT_EQ(message.size(), Handshake::kMessageBytes);
    EXPECT_EQ(message.find("a secret"), std::string::npos);
  }
}

TEST(Handshake, AnotherSecretIsRefused) {
  Identity other = identity_of_rank(4);
  other.secret = "secret word";
  const Conversation talk = converse(other, identity_of_rank(0));
  expect_both_refuse(talk, {"secret of job 'digits'"});
  EXPECT_TRUE(is_error<AuthenticationError>(talk.connector_failure));
  EXPECT_TRUE(is_error<AuthenticationError>(talk.acceptor_failure));
}

TEST(Handshake, AnotherJobIsRefused) {
  Identity other = identity_of_rank(4);
  other.job = "letters";
  const Conversation talk = converse(other, identity_of_rank(0));
  expect_both_refuse(talk, {"job 'digits'", "job 'letters'"});
  EXPECT_TRUE(is_error<AuthenticationError>(talk.connector_failure));
  EXPECT_TRUE(is_error<AuthenticationError>(talk.acceptor_failure));
}

TEST(Handshake, AnotherEpochIsRefused) {
  Identity other = identity_of_rank(4);
  other.epoch = 7;
  const Conversation talk = converse(other, identity_of_rank(0));
  expect_both_refuse(talk, {"epoch 2", "epoch 7"});
  EXPECT_TRUE(is_error<AuthenticationError>(talk.acceptor_failure));
}

TEST(Handshake, AnyEpochMatchesEveryEpoch) {
  Identity any = identity_of_rank(4);
  any.epoch = kAnyEpoch;
  EXPECT_TRUE(converse(any, identity_of_rank(0)).acceptor_done);
  EXPECT_TRUE(converse(identity_of_rank(0), any).connector_done);
}

TEST(Handshake, AnotherPurposeIsRefused) {
  Identity other = identity_of_rank(4);
  other.purpose = "rendezvous";
  const Conversation talk = converse(other, identity_of_rank(0));
  expect_both_refuse(talk, {"'tcp'", "'rendezvous'"});
  EXPECT_TRUE(is_error<ProtocolError>(talk.acceptor_failure));
}

TEST(Handshake, AnotherRankThanExpectedIsRefused) {
  Handshake a(Side::connector, identity_of_rank(3), test_nonce(1), 5);
  Handshake b(Side::acceptor, identity_of_rank(6), test_nonce(2));
  const Conversation talk = converse(a, b);
  expect_both_refuse(talk, {"rank 6"});
  EXPECT_TRUE(is_error<AuthenticationError>(talk.connector_failure));
}

TEST(Handshake, AnotherVersionIsRefusedByItsFirstBytes) {
  for (const size_t message : {0, 1, 2, 3}) {
    const Conversation talk =
        converse(identity_of_rank(0), identity_of_rank(1), [&](size_t n, std::string bytes) {
          if (n == message) bytes[4] = 9, bytes.resize(8);
          return bytes;
        });
    const auto& failure = message % 2 == 0 ? talk.acceptor_failure : talk.connector_failure;
    EXPECT_TRUE(is_error<ProtocolError>(failure));
    EXPECT_NE(text_of(failure).find("version 1 of the protocol, got version 9"), std::string::npos)
        << text_of(failure);
  }
}

TEST(Handshake, EveryFlippedBitIsNoticed) {
  const Conversation good = converse(identity_of_rank(0), identity_of_rank(1));
  ASSERT_EQ(good.messages.size(), 4u);
  for (size_t message = 0; message < 4; ++message)
    for (size_t bit = 0; bit < Handshake::kMessageBytes * 8; ++bit) {
      const Conversation talk =
          converse(identity_of_rank(0), identity_of_rank(1), [&](size_t n, std::string bytes) {
            if (n == message) bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
            return bytes;
          });
      // The acceptor has ended when it sends its last message, so only the connector can notice that one.
      EXPECT_FALSE(talk.connector_done) << "message " << message << ", bit " << bit;
      EXPECT_EQ(talk.acceptor_done, message == 3) << "message " << message << ", bit " << bit;
    }
}

TEST(Handshake, ARecordedConversationIsWorthless) {
  const Conversation recorded = converse(identity_of_rank(0), identity_of_rank(1));
  {
    Handshake connector(Side::connector, identity_of_rank(0), test_nonce(3));
    Handshake acceptor(Side::acceptor, identity_of_rank(1), test_nonce(2));
    const Conversation talk = converse(connector, acceptor, [&](size_t n, std::string bytes) {
      return n == 1 ? recorded.messages[1] : bytes;
    });
    EXPECT_TRUE(is_error<AuthenticationError>(talk.connector_failure));
  }
  {
    Handshake connector(Side::connector, identity_of_rank(0), test_nonce(1));
    Handshake acceptor(Side::acceptor, identity_of_rank(1), test_nonce(4));
    const Conversation talk = converse(connector, acceptor, [&](size_t n, std::string bytes) {
      return n == 0 || n == 2 ? recorded.messages[n] : bytes;
    });
    EXPECT_FALSE(talk.acceptor_done);
  }
}

TEST(Handshake, OnesOwnMessagesSentBackAreRefused) {
  Handshake connector(Side::connector, identity_of_rank(0), test_nonce(1));
  const std::string hello = connector.start().send;
  const auto actions = connector.receive(std::as_bytes(std::span(hello)));
  EXPECT_TRUE(is_error<ProtocolError>(actions.failure));
  EXPECT_TRUE(actions.send.empty());
}

TEST(Handshake, GarbageIsRefusedByItsFirstBytesWithoutAnAnswer) {
  Handshake acceptor(Side::acceptor, identity_of_rank(0), test_nonce(1));
  acceptor.start();
  const std::string request = "GET";
  const auto actions = acceptor.receive(std::as_bytes(std::span(request)));
  EXPECT_TRUE(is_error<ProtocolError>(actions.failure));
  EXPECT_TRUE(actions.send.empty());
  EXPECT_EQ(acceptor.wanted(), 0u);
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    Handshake other(round % 2 == 0 ? Side::acceptor : Side::connector, identity_of_rank(0), test_nonce(1));
    other.start();
    std::string bytes(Handshake::kMessageBytes, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    if (round % 3 != 0) bytes.replace(0, 6, std::string("MXHS\1\0", 6));
    if (round % 3 == 2) bytes[6] = static_cast<char>(round % 7);
    EXPECT_TRUE(other.receive(std::as_bytes(std::span(bytes))).failure);
  }
}

TEST(Handshake, ACutConversationIsALostPeer) {
  for (size_t message = 0; message < 4; ++message)
    for (const size_t bytes_left : {0, 1, 100, 191}) {
      Handshake a(Side::connector, identity_of_rank(0), test_nonce(1));
      Handshake b(Side::acceptor, identity_of_rank(1), test_nonce(2));
      const Conversation talk = converse(a, b, [&](size_t n, std::string bytes) {
        return n == message ? bytes.substr(0, bytes_left) : bytes;
      });
      EXPECT_FALSE(talk.connector_done);
      Handshake& waiting = message % 2 == 0 ? b : a;
      EXPECT_TRUE(is_error<PeerLost>(waiting.closed().failure));
      EXPECT_EQ(waiting.wanted(), 0u);
    }
}

TEST(Handshake, NoMoreBytesAreTakenThanAMessageHas) {
  Handshake acceptor(Side::acceptor, identity_of_rank(0), test_nonce(1));
  acceptor.start();
  EXPECT_EQ(acceptor.wanted(), Handshake::kMessageBytes);
  const std::string bytes(Handshake::kMessageBytes + 1, 'M');
  EXPECT_THROW(acceptor.receive(std::as_bytes(std::span(bytes))), InvalidState);
}

TEST(Handshake, NamesThatAreTooLongAreRefused) {
  Identity self = identity_of_rank(0);
  self.job.assign(Identity::kLongestJob, 'j');
  self.purpose.assign(Identity::kLongestPurpose, 'p');
  EXPECT_TRUE(converse(self, self).connector_done);
  self.job += 'j';
  EXPECT_THROW(Handshake(Side::acceptor, self, test_nonce(1)), InvalidArgument);
}

TEST(Handshake, AStrangersTextCannotWriteLinesIntoALog) {
  Identity other = identity_of_rank(0);
  other.job = "x\n2026 all is well\x1b[2J";
  const Conversation talk = converse(other, identity_of_rank(1));
  EXPECT_EQ(text_of(talk.acceptor_failure).find('\n'), std::string::npos);
  EXPECT_EQ(text_of(talk.acceptor_failure).find('\x1b'), std::string::npos);
}

TEST(Handshake, NoncesDiffer) { EXPECT_NE(random_nonce(), random_nonce()); }

TEST(Handshake, AProofIsWorthNothingOnAnotherEncryptedConnection) {
  Identity connector = identity_of_rank(0), acceptor = identity_of_rank(1);
  connector.tls = acceptor.tls = std::make_shared<const TlsContext>(TlsSettings{.keys = TlsKeys::secret});
  const auto meet = [&](const Bindings& bindings) {
    Handshake a(Side::connector, connector, test_nonce(1)), b(Side::acceptor, acceptor, test_nonce(2));
    return converse(a, b, {}, 1000, bindings);
  };
  const Conversation good = meet({"one connection", "one connection"});
  EXPECT_TRUE(good.connector_done && good.acceptor_done);
  // A third party encrypts with both and passes on what they say.
  expect_both_refuse(meet({"one connection", "another one"}), {"secret"});
  // It decrypts for one of them, or for both.
  expect_both_refuse(meet({"one connection", ""}), {"expected TLS, got clear text"});
  expect_both_refuse(meet({"", ""}), {"expected TLS, got clear text"});
  // Such a connector gets no proof from an acceptor in clear text, either.
  const Conversation downgraded = meet({"", "one connection"});
  EXPECT_TRUE(is_error<AuthenticationError>(downgraded.connector_failure));
  EXPECT_FALSE(downgraded.connector_done || downgraded.acceptor_done);
}

}  // namespace
}  // namespace mx::comm
