#include "comm/net/openssl.h"

#include <openssl/crypto.h>

namespace mx::comm {

void prepare_openssl() {
  // Without effect if the program has used OpenSSL before.
  static const int done = OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
  static_cast<void>(done);
}

}  // namespace mx::comm
