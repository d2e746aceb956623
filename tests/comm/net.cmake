mx_add_test(comm_net_test
  SOURCES
    net/handshake_test.cc
    net/socket_test.cc
    net/tls_test.cc
  DEPS mx::comm)
