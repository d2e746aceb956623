list(APPEND mx_comm_sources
  place.cc
  tcp/tcp_transport.cc)
