list(APPEND mx_comm_sources
  place.cc
  tcp/acceptor.cc
  tcp/connect.cc
  tcp/tcp_transport.cc)
