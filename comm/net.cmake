list(APPEND mx_comm_sources
  net/bytes.cc
  net/handshake.cc
  net/interface.cc
  net/openssl.cc
  net/resolve.cc
  net/secret.cc
  net/socket.cc
  net/stream.cc
  net/tls.cc
  net/tls_session.cc)
